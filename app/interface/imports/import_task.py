"""The running import and the indexing of what it stored, whether or not the import screen is open.

Owns the one import at a time, and the note about it in the top bar. Importing itself belongs to
`app.importing`, indexing the imported texts to `app.indexing.indexer`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path

from app.importing.path_completion import paths_of
from app.importing.process import import_in_child
from app.importing.session import watch
from app.interface.background_task import BackgroundTask
from app.interface.chat.conversation import Conversation
from app.interface.chat.topbar import TopBar
from app.interface.imports.status import ImportState, summary, topbar_note
from app.interface.messages import IndexerChanged
from app.locations import Locations
from datastores.errors import SpecchatError


class ImportTask(BackgroundTask):
    """Imports texts, and follows the indexer.

    Attributes:
        state: of the running import, or of the last one.
    """

    def __init__(self, conversation: Conversation, locations: Locations) -> None:
        super().__init__(conversation)
        self.state = ImportState()
        self._locations = locations

    def begin(self, typed: str) -> None:
        """Import the paths in `typed`, unless there is none or an import is running."""
        paths = paths_of(typed)
        if paths and not self.state.running:
            self.state = ImportState(typed=typed, running=True, indexing=self.state.indexing)
            self._start(partial(self._import, self.state, paths))
            self._changed()

    async def watch(self, source: str, watched: bool) -> None:
        """Follow the changes of an imported source from now on, or no longer.

        Raises:
            StoreError: that cannot be stored.
        """
        await asyncio.to_thread(watch, self._locations.imported, source, watched)

    def source_removed(self, path: str) -> None:
        """Show that `path` was deleted, in place of the last import's outcome."""
        if not self.state.running:
            self.state = ImportState(removed=path, indexing=self.state.indexing)
            self._changed()

    def follow_indexer(self, update: IndexerChanged) -> None:
        """Show the indexer's progress or error; an error that lasts is announced once."""
        if self.state.indexing is not None and update.progress is None:
            self.state.indexed_tokens += self.state.indexing.tokens
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
        for bar in self._conversation.query(TopBar):  # there is none left at shutdown
            bar.background = topbar_note(self.state)
        self._notify_listener()

    def _announce(self, state: ImportState) -> None:
        if state.error:
            self._conversation.show_error(state.error)
        else:
            self._conversation.notify(summary(state), markup=False, timeout=10)
