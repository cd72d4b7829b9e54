"""Forgetting a source: goes on whether or not the list of sources is open.

Owns the one forgetting at a time, and the words at its end. What leaves which store is
`app.forgetting`'s business; it takes seconds where a lot is stored, and runs beside the screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from app.importing.listing import Listed, listed
from app.interface.conversation import Conversation
from app.interface.imports_wording import at_home
from app.locations import Locations
from datastores.errors import SpecchatError
from datastores.history import History
from datastores.library import Library

if TYPE_CHECKING:
    from app.engine import Engine


class Forgetting:
    """Forgets one source after the other.

    Attributes:
        path: the source being forgotten; empty between two.
        changed: called when that changes; set by whoever shows it.
    """

    def __init__(self, conversation: Conversation, locations: Locations) -> None:
        self.path = ""
        self.changed: Callable[[], object] | None = None
        self._conversation = conversation
        self._locations = locations

    @property
    def running(self) -> bool:
        """Whether a source is being forgotten."""
        return bool(self.path)

    def listed(self) -> list[Listed]:
        """All sources, with the tokens of the model that answers. Reads stores: for a thread.

        Raises:
            StoreError: one of them cannot be opened.
        """
        engine = self._engine
        return listed(self._locations, engine.vocabulary.fingerprint if engine else "")

    def begin(self, path: str) -> None:
        """Forget the source `path` in every store."""
        self.path = path
        self._conversation.run_worker(self._see_through(path))

    async def _see_through(self, path: str) -> None:
        self._tell()
        try:
            await asyncio.to_thread(_forget, self._locations, path, self._engine)
        except SpecchatError as error:
            self._conversation.complain(error)
        else:
            self._conversation.notify(f"{at_home(path)} is forgotten", markup=False, timeout=4)
        finally:
            self.path = ""
            self._tell()

    @property
    def _engine(self) -> Engine | None:
        model = self._conversation.talk.model
        return model.engine if model is not None else None

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()


def _forget(locations: Locations, path: str, engine: Engine | None) -> None:
    from app.forgetting import forget_source

    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        forget_source(library, history, locations, path, engine)
