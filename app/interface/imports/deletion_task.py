"""Deletes an imported source, whether or not the list of sources is open.

Owns the one deletion at a time, and what is announced at its end. `app.runtime.deletion` knows what
to remove from which store; it takes seconds where a lot is stored, so it runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from app.importing.session import ListedSource, list_sources
from app.indexing.corpus_index import token_counts
from app.interface.background_task import BackgroundTask
from app.interface.chat.conversation import Conversation
from app.locations import Locations
from app.sanitise import tilde_path
from datastores.chats.history import History
from datastores.errors import SpecchatError
from datastores.library.library import Library

if TYPE_CHECKING:
    from app.engine.engine import Engine


class DeletionTask(BackgroundTask):
    """Deletes one source at a time from every store.

    Attributes:
        path: the source that is being deleted; empty while there is none.
    """

    def __init__(
        self,
        conversation: Conversation,
        locations: Locations,
        on_removed: Callable[[str], object],
    ) -> None:
        """`on_removed` is called with the path of each source that was deleted."""
        super().__init__(conversation)
        self._on_removed = on_removed
        self.path = ""
        self._locations = locations

    @property
    def running(self) -> bool:
        """Whether a source is being deleted."""
        return bool(self.path)

    def sources(self) -> list[ListedSource]:
        """All sources, with their tokens by the current model's tokenizer. Call it in a thread.

        Raises:
            StoreError: a store cannot be opened.
        """
        engine = self._engine
        tokenizer = engine.vocabulary.fingerprint if engine else ""
        return list_sources(self._locations, token_counts(self._locations, tokenizer))

    def begin(self, path: str) -> None:
        """Delete the source `path` from every store."""
        self.path = path
        self._start(partial(self._delete, path))

    async def _delete(self, path: str) -> None:
        self._notify_listener()
        try:
            await self._run_in_thread(partial(_delete_source, self._locations, path, self._engine))
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            self._conversation.notify(f"Removed {tilde_path(path)}", markup=False, timeout=4)
            self._on_removed(path)
        finally:
            self.path = ""
            self._notify_listener()

    @property
    def _engine(self) -> Engine | None:
        model = self._conversation.model_thread.model
        return model.engine if model is not None else None


def _delete_source(locations: Locations, path: str, engine: Engine | None) -> None:
    from app.runtime.deletion import forget_source

    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        forget_source(library, history, locations, path, engine)
