"""Forgetting a source: goes on whether or not the list of sources is open.

Owns the one forgetting at a time, and the words at its end. What leaves which store is
`app.runtime.deletion`'s business; it takes seconds where a lot is stored, and runs beside the
screen.

The import at hand and what is made of it: goes on whether or not its screen is open.

Owns the one import at a time, and what the line at the top says of it. What an import does is
`app.importing`'s business; that its texts are then made ready for drafting, the indexer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message
from textual.worker import Worker

from app.importing.events import (
    Event,
    FindingFiles,
    ImportFinished,
    ImportProgress,
    ImportReport,
    SkippedFile,
)
from app.importing.path_completion import paths_of
from app.importing.process import import_beside
from app.indexing.corpus_index import Projecting
from app.indexing.source_list import ListedSource, listed
from app.interface.chat.conversation import Conversation
from app.interface.chat.topbar import TopBar
from app.interface.imports.phrases import at_home, ended, note
from app.locations import Locations
from datastores.chats.history import History
from datastores.errors import SpecchatError
from datastores.library.library import Library


@dataclass
class Learnt(Message):
    """The indexer's work goes on, ended (None) or failed; see `app.indexing.indexer.Indexer`."""

    progress: Projecting | None
    trouble: SpecchatError | None


@dataclass(slots=True)
class ImportState:
    """How an import stands.

    Attributes:
        line: what the person typed; empty before the first import.
        running: whether it goes on.
        found: files found so far, while folders are searched.
        progress: how far reading has come; None before.
        report: the end's or, while it runs, what was skipped so far.
        whole: whether it came to its end.
        failure: why there was nothing to import, or why it broke off; empty otherwise.
        learning: what the indexer does with it; None while it does nothing.
        ready: tokens it has made ready for drafting since the import began.
        trouble: why it could not; empty while all is well.
    """

    line: str = ""
    running: bool = False
    found: int = 0
    progress: ImportProgress | None = None
    report: ImportReport = field(default_factory=ImportReport)
    whole: bool = False
    failure: str = ""
    learning: Projecting | None = None
    ready: int = 0
    trouble: str = ""

    def take(self, event: Event) -> None:
        """Follow the import."""
        match event:
            case FindingFiles(files):
                self.found = files
            case ImportProgress():
                self.progress = event
            case SkippedFile(name, reason):
                self.report.skipped.setdefault(reason, []).append(name)
            case ImportFinished(report):
                # The library's own damage was told of before the import began to count.
                skipped = {**self.report.skipped, **report.skipped}
                self.report, self.whole = replace(report, skipped=skipped), True


class Importing:
    """Imports, stops, and follows the indexer.

    Attributes:
        state: of the import at hand, or of the last one.
        changed: called whenever `state` changed; set by whoever shows it.
    """

    def __init__(self, conversation: Conversation, locations: Locations) -> None:
        self.state = ImportState()
        self.changed: Callable[[], object] | None = None
        self._conversation = conversation
        self._locations = locations
        self._worker: Worker[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    def begin(self, line: str) -> None:
        """Import the paths in `line`, unless there is none or an import is running."""
        paths = paths_of(line)
        if paths and not self.state.running:
            learning = self.state.learning
            self.state = ImportState(line=line, running=True, learning=learning)
            self._worker = self._conversation.run_worker(self._see_through(self.state, paths))
            self._tell()

    def stop(self) -> None:
        """Stop where it is; what is in stays."""
        if self._worker is not None:
            self._worker.cancel()

    async def leave(self) -> None:
        """Stop, and return when the process is gone: the interface ends."""
        self.stop()
        async with self._one_at_a_time:
            pass

    def learnt(self, told: Learnt) -> None:
        """Follow the indexer."""
        if self.state.learning is not None and told.progress is None:
            self.state.ready += self.state.learning.tokens
        self.state.learning = told.progress
        trouble = str(told.trouble or "")
        if trouble and trouble != self.state.trouble:
            self._conversation.complain(trouble)
        self.state.trouble = trouble
        self._tell()

    async def _see_through(self, state: ImportState, paths: list[Path]) -> None:
        begun = import_beside(paths, self._locations)
        try:
            # One that was stopped is at work until its process is gone.
            async with self._one_at_a_time, aclosing(begun) as batches:
                async for batch in batches:
                    for event in batch:
                        state.take(event)
                    self._tell()
        except SpecchatError as error:
            state.failure = str(error)
        finally:
            state.running = False
            self._tell()
        if self.changed is None:
            self._say(state)

    def _tell(self) -> None:
        for bar in self._conversation.query(TopBar):  # none is left where the person leaves
            bar.background = note(self.state)
        if self.changed is not None:
            self.changed()

    def _say(self, state: ImportState) -> None:
        """Say how it ended to a person who is elsewhere."""
        if state.failure:
            self._conversation.complain(state.failure)
        else:
            self._conversation.notify(ended(state), markup=False, timeout=10)


if TYPE_CHECKING:
    from app.engine.engine import Engine


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

    def listed(self) -> list[ListedSource]:
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
    from app.runtime.deletion import forget_source

    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        forget_source(library, history, locations, path, engine)
