"""The running import and the running deletion, one of each at a time, with or without a dialog.

A deletion runs in a thread, since large stores take seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.importing.path_completion import paths_of
from app.importing.process import import_in_child
from app.importing.session import ListedImport, list_imports, watch
from app.indexing.corpus_index import token_counts
from app.interface.background_task import BackgroundTask
from app.interface.chat.conversation import Conversation
from app.interface.chat.topbar import TopBar
from app.interface.imports.status import ImportState, summary, topbar_note
from app.interface.messages import IndexerChanged
from app.locations import Locations
from app.sanitise import tilde_path
from datastores.chats.history import History
from datastores.errors import SpecchatError
from datastores.library.library import Library

if TYPE_CHECKING:
    from app.engine.engine import Engine


class ImportTask(BackgroundTask):
    """Imports texts, and shows the progress of the indexer.

    Attributes:
        state: state of the running or last import.
    """

    def __init__(self, conversation: Conversation, locations: Locations) -> None:
        super().__init__(conversation)
        self.state = ImportState()
        self._locations = locations

    def begin(self, typed: str) -> None:
        """Import the paths in `typed`, unless there are none or an import is running."""
        paths = paths_of(typed)
        if paths and not self.state.running:
            self.state = ImportState(typed=typed, running=True, indexing=self.state.indexing)
            self._start(partial(self._import, self.state, paths))
            self._changed()

    async def watch(self, import_path: str, watched: bool) -> None:
        """Start or stop watching an import.

        Raises:
            StoreError: the setting cannot be stored.
        """
        await asyncio.to_thread(watch, self._locations.imported, import_path, watched)

    def import_removed(self, path: str) -> None:
        """Show that `path` was deleted instead of the outcome of the last import."""
        if not self.state.running:
            self.state = ImportState(removed=path, indexing=self.state.indexing)
            self._changed()

    def follow_indexer(self, update: IndexerChanged) -> None:
        """Show the indexer's progress or error; a persistent error is announced once."""
        ended = self.state.indexing if update.progress is None else None
        if ended is not None and ended.imports:
            self.state.indexed_tokens += ended.tokens
        self.state.indexing = update.progress
        error = str(update.error or "")
        if error and error != self.state.indexer_error:
            self._conversation.show_error(error)
        self.state.indexer_error = error
        self._changed()

    async def _import(self, state: ImportState, paths: list[Path]) -> None:
        try:
            async with aclosing(import_in_child(paths, self._locations)) as batches:
                async for batch in batches:
                    for event in batch:
                        state.apply(event)
                    self._changed()
        except SpecchatError as error:
            state.error = str(error)
        finally:
            state.running = False
            self._changed()
        if not self.watched:
            self._announce(state)

    def _changed(self) -> None:
        for bar in self._conversation.query(TopBar):  # removed at shutdown
            bar.background = topbar_note(self.state)
        self._notify_listener()

    def _announce(self, state: ImportState) -> None:
        if state.error:
            self._conversation.show_error(state.error)
        else:
            self._conversation.notify(summary(state), markup=False, timeout=10)


class DeletionTask(BackgroundTask):
    """Lists and renames imports, and deletes one at a time from every store.

    Attributes:
        path: the import that is being deleted, or empty.
    """

    def __init__(
        self,
        conversation: Conversation,
        locations: Locations,
        on_removed: Callable[[str], object],
    ) -> None:
        """`on_removed` is called with the path of each deleted import."""
        super().__init__(conversation)
        self._on_removed = on_removed
        self.path = ""
        self._locations = locations

    @property
    def running(self) -> bool:
        return bool(self.path)

    def imports(self) -> list[ListedImport]:
        """All imports with their token counts for the current model. Call it in a thread.

        Raises:
            StoreError: a store cannot be opened.
        """
        engine = self._engine
        tokenizer = engine.vocabulary.fingerprint if engine else ""
        return list_imports(self._locations, token_counts(self._locations, tokenizer))

    def program_answers(self) -> int:
        """Number of answers to programs that are kept. Call it in a thread.

        Raises:
            StoreError: the history cannot be opened.
        """
        with closing(History.open(self._locations.history)) as history:
            return history.program_answers().answers

    def rename(self, path: str, name: str) -> None:
        """Name an import. Call it in a thread.

        Raises:
            InputError: the name is another import's, empty or too long.
            StoreError: it cannot be stored.
        """
        with closing(Library.open(self._locations.library)) as library:
            library.rename(path, name)

    def begin(self, path: str) -> None:
        """Delete the import `path` from every store."""
        self.path = path
        self._start(partial(self._delete, path))

    async def _delete(self, path: str) -> None:
        self._notify_listener()
        try:
            await self._run_in_thread(partial(_delete_import, self._locations, path, self._engine))
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            self._conversation.notify(f"Removed {tilde_path(path)}", markup=False, timeout=4)
            self._on_removed(path)
        finally:
            self.path = ""
            self._notify_listener()


def _delete_import(locations: Locations, path: str, engine: Engine | None) -> None:
    from app.runtime.deletion import forget_import

    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        forget_import(library, history, locations, path, engine)
