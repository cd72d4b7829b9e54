"""The process that imports while the interface runs: `python -m app.importing.child`.

A process of its own, since reading, hashing and taking out secrets would hold the interpreter that
an answer is being decoded in. It may be killed at any moment. A line of JSON on standard output
for each batch of events; when nobody reads them, it ends.

An import in a process of its own, and its events, as `app.importing.process` tells them.

Owns what its words mean. Refuses to know screens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

from app.child_process import AsyncChildProcess, emit
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
from datastores.errors import InputError, SpecchatError, StoreError
from datastores.library.library import Library

_ERRORS: Mapping[str, type[SpecchatError]] = {
    error.__name__: error for error in (InputError, StoreError)
}


async def import_in_child(
    paths: Sequence[Path], locations: Locations
) -> AsyncGenerator[list[Event], None]:
    """Import `paths` into the library of `locations`; yields what happened, ten times a second.

    Closing it ends the process where it is: what is stored stays, and importing the same paths goes
    on from there.

    Raises:
        InputError, StoreError: as `import_paths`; also where the process dies of itself.
    """
    error: SpecchatError | None = None
    places = (locations.data, locations.cache, locations.config)
    async with AsyncChildProcess("app.importing.process", *places, *paths) as child:
        async for told in child:
            if isinstance(told, list):
                yield [_event(**event) for event in told]
            else:
                error = _ERRORS[told["kind"]](told["message"])
        code = await child.code()
    if error is None and code:
        error = StoreError(
            f"the import broke off (exit code {code}): what is in stays, and the same path goes on"
        )
    if error is not None:
        raise error


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
"""The answer that is being written goes first; the person waits for the import too, though."""
BATCH_INTERVAL_S = 0.1
"""Seconds between two lines: more often is not read."""
LIBRARY_QUARANTINED = "a damaged library, set aside: import your texts again"


def main(arguments: Sequence[str]) -> int:
    """Import. `arguments`: data, cache and configuration directory; then the paths."""
    data, cache, config, *paths = map(Path, arguments)
    if sys.platform != "win32":
        os.nice(NICENESS)
    try:
        _tell_all(Locations(data, cache, config), paths)
    except SpecchatError as error:
        emit({"kind": type(error).__name__, "message": str(error)})
        return 1
    return 0


def _tell_all(locations: Locations, paths: Sequence[Path]) -> None:
    """Print what happens; of progress, in each batch, the latest."""
    batch: list[Event] = []
    due = 0.0
    try:
        for event in _events(locations, paths):
            if (
                batch
                and isinstance(event, ImportProgress)
                and isinstance(batch[-1], ImportProgress)
            ):
                batch.pop()
            batch.append(event)
            if monotonic() >= due:
                _tell(batch)
                batch, due = [], monotonic() + BATCH_INTERVAL_S
    finally:
        _tell(batch)


def _events(locations: Locations, paths: Sequence[Path]) -> Iterator[Event]:
    locations.create()
    with closing(Library.open(locations.library)) as library:
        if library.store.quarantined is not None:
            yield SkippedFile(str(library.store.quarantined), LIBRARY_QUARANTINED)
        yield from import_into(library, locations, paths)


def _tell(batch: Sequence[Event]) -> None:
    emit([{"kind": type(event).__name__, **asdict(event)} for event in batch])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
