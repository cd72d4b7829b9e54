"""The process that imports while the interface runs: `python -m app.importing.child`.

A process of its own, since reading, hashing and taking out secrets would hold the interpreter that
an answer is being decoded in. It may be killed at any moment. A line of JSON on standard output
for each batch of events; when nobody reads them, it ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from app.children import tell
from app.importing.events import Event, Progress, Skipped
from app.importing.session import import_into
from app.locations import Locations
from datastores.errors import SpecchatError
from datastores.library import Library

NICE = 10
"""The answer that is being written goes first; the person waits for the import too, though."""
INTERVAL = 0.1
"""Seconds between two lines: more often is not read."""
SET_ASIDE = "a damaged library, set aside: import your texts again"


def main(arguments: Sequence[str]) -> int:
    """Import. `arguments`: data, cache and configuration directory; then the paths."""
    data, cache, config, *paths = map(Path, arguments)
    if sys.platform != "win32":
        os.nice(NICE)
    try:
        _tell_all(Locations(data, cache, config), paths)
    except SpecchatError as error:
        tell({"kind": type(error).__name__, "message": str(error)})
        return 1
    return 0


def _tell_all(locations: Locations, paths: Sequence[Path]) -> None:
    """Print what happens; of progress, in each batch, the latest."""
    batch: list[Event] = []
    due = 0.0
    try:
        for event in _events(locations, paths):
            if batch and isinstance(event, Progress) and isinstance(batch[-1], Progress):
                batch.pop()
            batch.append(event)
            if monotonic() >= due:
                _tell(batch)
                batch, due = [], monotonic() + INTERVAL
    finally:
        _tell(batch)


def _events(locations: Locations, paths: Sequence[Path]) -> Iterator[Event]:
    locations.create()
    with closing(Library.open(locations.library)) as library:
        if library.store.set_aside is not None:
            yield Skipped(str(library.store.set_aside), SET_ASIDE)
        yield from import_into(library, locations, paths)


def _tell(batch: Sequence[Event]) -> None:
    tell([{"kind": type(event).__name__, **asdict(event)} for event in batch])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
