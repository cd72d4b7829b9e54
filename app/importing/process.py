"""An import in a child process: `python -m app.importing.process`.

Reading, hashing and redacting would hold the GIL of the process that decodes an answer. The module
has both sides: `import_in_child` for the parent, and `import_and_report` for the child, which may
be killed at any time; what is stored stays.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

from app.foreground import Foreground
from app.importing.events import (
    Event,
    FindingFiles,
    ImportFinished,
    ImportProgress,
    ImportReport,
    SkippedFile,
)
from app.importing.session import import_into
from app.locations import Locations
from datastores.errors import StoreError
from datastores.library.library import Library
from engines.child_process import AsyncChildProcess, emit, run_child

MAX_NAMED_FILES = 200
"""With more changed files than this, the child reads the whole import."""


async def import_in_child(
    paths: Sequence[Path], locations: Locations, only: Set[str] = frozenset()
) -> AsyncGenerator[list[Event], None]:
    """Import `paths` into the library of `locations`; yields batches of events, ten a second.

    Closing it kills the child; importing the same paths again resumes.

    Args:
        only: names of the files to import from the only path in `paths`; empty for all.

    Raises:
        InputError, StoreError: as `import_paths`; StoreError also if the child dies.
    """
    directories = (locations.data, locations.cache, locations.config)
    names = sorted(only) if 0 < len(only) <= MAX_NAMED_FILES else []
    arguments = (*directories, len(names), *names, *paths)
    async with AsyncChildProcess("app.importing.process", *arguments) as child:
        async for batch in child:
            yield [_event(**event) for event in batch]
        code = await child.code()
    if code:
        raise StoreError(
            f"the import failed (exit code {code}); import the same path again to resume"
        )


def _event(kind: str, **fields: Any) -> Event:
    match kind:
        case "FindingFiles":
            return FindingFiles(**fields)
        case "SkippedFile":
            return SkippedFile(**fields)
        case "ImportProgress":
            return ImportProgress(**fields)
        case _:
            return ImportFinished(ImportReport(**fields["report"]))


NICENESS = 10
"""Lower priority than the answer being written, but not the lowest: the user waits for both."""
BATCH_INTERVAL_S = 0.1
"""Time between two messages; the interface redraws no more often."""


def import_and_report(arguments: Sequence[str]) -> None:
    """In the child: import, and emit events in batches, with only the latest of several progress
    events in a row.

    Args:
        arguments: data, cache and configuration directory; the number of file names and these
            names; then the paths.
    """
    data, cache, config, count, *rest = arguments
    only = frozenset(rest[: int(count)]) or None
    locations = Locations(Path(data), Path(cache), Path(config))
    paths = [Path(path) for path in rest[int(count) :]]
    batch: list[Event] = []
    due = 0.0
    try:
        for event in _events(locations, paths, only):
            if (
                batch
                and isinstance(event, ImportProgress)
                and isinstance(batch[-1], ImportProgress)
            ):
                batch.pop()
            batch.append(event)
            if monotonic() >= due:
                _emit_batch(batch)
                batch, due = [], monotonic() + BATCH_INTERVAL_S
    finally:
        _emit_batch(batch)


def _events(locations: Locations, paths: Sequence[Path], only: Set[str] | None) -> Iterator[Event]:
    locations.create()
    with (
        Foreground(locations.foreground).work(),
        closing(Library.open(locations.library)) as library,
    ):
        yield from import_into(library, locations, paths, only)


def _emit_batch(batch: Sequence[Event]) -> None:
    emit([{"kind": type(event).__name__, **asdict(event)} for event in batch])


if __name__ == "__main__":
    run_child(import_and_report, niceness=NICENESS)
