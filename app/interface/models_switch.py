"""Which model answers: loads the first one, and another in its place where the person wants it.

Owns what is said while that takes its time, and what is kept of a choice. Loading itself is
`talk.py`'s business, choosing the picker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from app.figures import Figures
from app.interface.conversation import Conversation
from app.interface.keys import keys_of
from app.interface.models import Picker
from app.interface.models_fetch import Fetching
from app.interface.offer import offer
from app.interface.talk import Model
from app.locations import Locations
from app.models.choosing import choose
from app.models.describing import FoundModel
from app.models.own import embedded
from app.sanitise import one_line
from datastores.errors import SpecchatError

LOADING = "loading the model…"
NONE = "no model"
BUSY = "an answer is still being written: {answer.stop} stops it; then choose again"


class Models:
    """Puts models in one another's place."""

    def __init__(self, conversation: Conversation, figures: Figures, locations: Locations) -> None:
        self._conversation = conversation
        self._figures = figures
        self._locations = locations
        self._fetching = Fetching(conversation)

    async def load(self) -> None:
        """Load the first model."""
        if await self._loaded(self._conversation.talk.load()):
            await self._offer()

    def pick(self) -> None:
        """Let the person choose."""
        model = self._conversation.talk.model
        in_use = model.path if model is not None else None
        picker = Picker(self._locations, in_use, self._fetching)
        self._conversation.app.push_screen(picker, self._chosen)

    async def leave(self) -> None:
        """Stop fetching: the interface ends."""
        await self._fetching.leave()

    def _chosen(self, found: FoundModel | None) -> None:
        if found is None:
            return
        if self._conversation.talk.turn is not None:
            self._conversation.complain(keys_of(self._conversation).fill(BUSY))
        else:
            self._conversation.run_worker(self._switch(found))

    async def _switch(self, found: FoundModel) -> None:
        """Load another model and, if it can be, keep the choice."""
        self._conversation.bar.model = ""
        if not await self._loaded(self._conversation.talk.switch(str(found.path))):
            return
        self._figures.reset()
        self._conversation.redraw_figures()
        try:
            await asyncio.to_thread(choose, found.name, self._locations)
        except SpecchatError as error:
            self._conversation.complain(error)
        else:
            name = one_line(found.name, 60)
            self._conversation.notify(f"{name} answers from now on", markup=False, timeout=4)

    async def _loaded(self, loading: Awaitable[Model]) -> bool:
        """See a model loaded, and say which one answers then; whether it is the wanted one."""
        bar, talk = self._conversation.bar, self._conversation.talk
        bar.failed, bar.state = False, LOADING
        try:
            await loading
        except SpecchatError as error:
            self._conversation.complain(error)
            return False
        finally:
            bar.failed = talk.model is None
            bar.state = NONE if bar.failed else ""
            bar.model = talk.model.name if talk.model is not None else ""
            self._conversation.tell(talk.model.hint if talk.model is not None else "")
        return True

    async def _offer(self) -> None:
        """At the first launch, say what else could answer."""
        model = self._conversation.talk.model
        if model is None or model.path != embedded():
            return
        try:
            told = await asyncio.to_thread(offer, self._locations)
        except SpecchatError as error:
            self._conversation.complain(error)
        else:
            offered = keys_of(self._conversation).fill(told)
            self._conversation.tell("\n".join(filter(None, (model.hint, offered))))
