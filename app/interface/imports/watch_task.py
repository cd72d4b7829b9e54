"""Checks watched imports for changes whenever no answer or other import is running.

Files are read in the import's child process; deletions run in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

from app.importing.process import import_in_child
from app.importing.session import watched_imports
from app.importing.watch import (
    MIN_INTERVAL_S,
    FolderChange,
    FolderState,
    compare,
    interval,
    look,
)
from app.interface.background_task import BackgroundTask
from app.interface.chat.conversation import Conversation
from app.interface.imports.tasks import DeletionTask, ImportTask
from app.locations import Locations
from app.machine import on_battery
from datastores.chats.history import History
from datastores.errors import SpecchatError
from datastores.library.library import Library

if TYPE_CHECKING:
    from app.engine.engine import Engine

BATTERY_FACTOR = 10
"""Factor on the interval between checks while on battery."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of an import: its state and changes, or the problem."""

    import_path: str
    state: FolderState | None = None
    change: FolderChange | None = None
    problem: str = ""


class WatchTask(BackgroundTask):
    """Imports new and changed files of watched imports, and deletes removed ones."""

    def __init__(
        self,
        conversation: Conversation,
        import_task: ImportTask,
        deletion_task: DeletionTask,
        locations: Locations,
    ) -> None:
        super().__init__(conversation)
        self._import_task = import_task
        self._deletion_task = deletion_task
        self._locations = locations
        self._states: dict[str, FolderState] = {}
        self._problems: dict[str, str] = {}

    def begin(self) -> None:
        """Start checking."""
        self._start(self._watch)

    async def _watch(self) -> None:
        pause = MIN_INTERVAL_S
        while True:
            await asyncio.sleep(pause)
            pause = MIN_INTERVAL_S if self._is_busy() else await self._check_all()

    def _is_busy(self) -> bool:
        answering = self._conversation.turn is not None
        return answering or self._import_task.state.running or self._deletion_task.running

    async def _check_all(self) -> float:
        """Check every watched import; returns the seconds until the next check."""
        try:
            found, cost_s = await asyncio.to_thread(self._look_at_all)
        except SpecchatError as error:
            self._report("", str(error))
            return interval(0) * BATTERY_FACTOR
        for check in found:
            self._report(check.import_path, check.problem)
            # An answer has precedence; the next check finds the same change.
            if check.change is not None and not self._is_busy():
                await self._apply(check, check.change)
        return interval(cost_s) * (BATTERY_FACTOR if on_battery() else 1)

    def _look_at_all(self) -> tuple[list[Check], float]:
        """Check every watched import, in a thread; returns also the processor seconds it took."""
        imports, started = watched_imports(self._locations.imported), thread_time()
        if not imports:
            return [], 0.0
        with closing(Library.open(self._locations.library)) as library:
            found = [self._look(import_path, library.files(import_path)) for import_path in imports]
        return found, thread_time() - started

    def _look(self, import_path: str, stored: set[str]) -> Check:
        locations = self._locations
        own = (locations.data, locations.cache, locations.config)
        try:
            state = look(import_path, frozenset(path.resolve() for path in own))
            change = compare(import_path, self._states.get(import_path), state, stored)
        except SpecchatError as error:
            return Check(import_path, problem=str(error))
        return Check(import_path, state, change)

    async def _apply(self, check: Check, change: FolderChange) -> None:
        import_path, before = check.import_path, self._states.get(check.import_path)
        assert check.state is not None
        self._states[import_path] = check.state
        if not change.changed and not change.removed:
            return
        try:
            if change.changed:
                await self._import(
                    import_path, change.changed if before is not None else frozenset()
                )
            if change.removed:
                await self._run_in_thread(
                    partial(
                        _forget_files, self._locations, import_path, change.removed, self._engine
                    )
                )
        except SpecchatError as error:
            self._report(import_path, str(error))
        self._notify_listener()

    async def _import(self, import_path: str, names: frozenset[str]) -> None:
        """Import the files `names`; without names, all that changed since they were imported."""
        async with aclosing(
            import_in_child([Path(import_path)], self._locations, names)
        ) as batches:
            async for _ in batches:
                pass

    def _report(self, import_path: str, problem: str) -> None:
        """Show a problem once for as long as it lasts."""
        if problem and self._problems.get(import_path) != problem:
            self._conversation.show_error(problem)
        self._problems[import_path] = problem


def _forget_files(
    locations: Locations, import_path: str, files: Iterable[str], engine: Engine | None
) -> None:
    from app.runtime.deletion import forget_files

    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        forget_files(library, history, locations, import_path, files, engine)
