"""Imports a folder and is killed again and again: `python -m tests.app.importing.killer`.

A process of its own that forks, as a test session with its threads must not.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.importing import pipeline
from app.importing.session import import_into
from app.indexing import corpus_index
from app.locations import locate
from datastores.library.library import Library
from tests.app.characters import BUDGET, Characters

SLICE = 20_000
"""Characters tokenised between two writes: so few that kills fall between them too."""


def whole(folder: Path, data: Path) -> Iterator[object]:
    """Import `folder` and make it ready for drafting, as the command does; yields all events."""
    places = locate(data)
    places.create()
    with closing(Library.open(places.library)) as library:
        yield from import_into(library, places, [folder])
    with corpus_index.open_index(places, Characters(), BUDGET) as projected:
        assert projected.lock.acquire()
        yield from projected.run(settle=True)


def main(folder: Path, data: Path, kills: int) -> None:
    """Kill imports of `folder` `kills` times, at any of their statements to the databases.

    Each is gone on with until it comes to its end; then the next begins, in another directory of
    `data`. The last one is left as it was killed.
    """
    chance = random.Random(kills)
    statements = len(_statements(folder, data / "counted"))
    numbers = count()
    place = data / str(next(numbers))
    while kills:
        if _killed_after(1 + chance.randrange(statements), folder, place, chance):
            kills -= 1
        else:
            place = data / str(next(numbers))


def _statements(folder: Path, place: Path) -> list[str]:
    """Every statement of an undisturbed import."""
    said: list[str] = []
    with patch.object(sqlite3, "connect", _tracing(said.append)):
        for _ in whole(folder, place):
            pass
    return said


def _tracing(trace: Callable[[str], object]) -> Callable[..., sqlite3.Connection]:
    """`sqlite3.connect`, whose connections report each statement before it runs."""
    connect = sqlite3.connect

    def connected(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **named)
        connection.set_trace_callback(trace)
        return connection

    return connected


def _killed_after(statements: int, folder: Path, place: Path, chance: random.Random) -> bool:
    """Import in groups of any size; kill that after so many statements, if it has so many left."""
    read_end, write_end = os.pipe()
    characters = chance.choice([1, 60, 4000])
    child = os.fork()
    if child == 0:
        pipeline.MAX_GROUP_CHARACTERS = characters
        corpus_index.SLICE_CHARACTERS = SLICE
        with patch.object(sqlite3, "connect", _tracing(lambda _: os.write(write_end, b"."))):
            for _ in whole(folder, place):
                pass
        os._exit(0)
    os.close(write_end)
    seen = 0
    while seen < statements and (some := os.read(read_end, statements - seen)):
        seen += len(some)
    os.kill(child, signal.SIGKILL)
    os.close(read_end)
    _, status = os.waitpid(child, 0)
    return seen == statements and os.WIFSIGNALED(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
