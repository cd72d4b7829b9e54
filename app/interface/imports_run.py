"""The import at hand and what is made of it: goes on whether or not its screen is open.

Owns the one import at a time, and what the line at the top says of it. What an import does is
`app.importing`'s business; that its texts are then made ready for drafting, the indexer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from textual.message import Message
from textual.worker import Worker

from app.importing.beside import import_beside
from app.importing.events import Event, Finished, Progress, Report, Searching, Skipped
from app.importing.paths import paths_of
from app.interface.conversation import Conversation
from app.interface.imports_wording import ended, note
from app.interface.topbar import TopBar
from app.locations import Locations
from app.projection import Projecting
from datastores.errors import SpecchatError


@dataclass
class Learnt(Message):
    """The indexer's work goes on, ended (None) or failed; see `app.indexer.Indexer`."""

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
    progress: Progress | None = None
    report: Report = field(default_factory=Report)
    whole: bool = False
    failure: str = ""
    learning: Projecting | None = None
    ready: int = 0
    trouble: str = ""

    def take(self, event: Event) -> None:
        """Follow the import."""
        match event:
            case Searching(files):
                self.found = files
            case Progress():
                self.progress = event
            case Skipped(name, reason):
                self.report.skipped.setdefault(reason, []).append(name)
            case Finished(report):
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
