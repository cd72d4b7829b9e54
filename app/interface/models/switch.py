"""Which model answers: loads the first one, and another in its place where the person wants it.

Owns what is said while that takes its time, and what is kept of a choice. Loading itself is
`talk.py`'s business, choosing the picker's.

What the first launch offers in place of the embedded model. Said once, in the empty chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from app.conversation.session_statistics import Figures
from app.interface.chat.conversation import Conversation
from app.interface.commands.keymap import keys_of
from app.interface.models.download import Fetching
from app.interface.models.picker import ModelPicker
from app.locations import Locations
from app.models.description import FoundModel
from app.models.known_folders import embedded
from app.models.selection import choose, first_launch_offer
from app.runtime.model_thread import Model
from app.sanitise import one_line
from datastores.errors import SpecchatError, StoreError


def offer(locations: Locations) -> str:
    """One line at the first launch, nothing at any other. Looks into files: for the background.

    In it, `{models}` stands for the key of the models.

    Raises:
        InputError: the settings file is not understood.
        ModelError: a model was taken away while it was looked at.
        StoreError: that it was said cannot be noted.
    """
    if locations.offered.exists():
        return ""
    found = len(first_launch_offer(locations))
    try:
        locations.offered.touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {locations.offered}: {error.strerror}; check its permissions"
        ) from error
    return wording(found)


def wording(found: int) -> str:
    """The offer of so many models."""
    if not found:
        return "{models} fetches a larger one from Hugging Face."
    if found == 1:
        return "{models} offers another one that was found on this machine, or fetches one."
    return f"{{models}} chooses among {found} others that were found on this machine."


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
        picker = ModelPicker(self._locations, in_use, self._fetching)
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
