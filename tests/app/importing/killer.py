"""Imports a folder and is killed again and again: `python -m tests.app.importing.killer`.

A process of its own that forks, as a test session with its threads must not.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from app.importing import intake
from app.importing.run import import_paths
from datastores.library import Library


def main(folder: Path, database: Path, kills: int, events: int) -> None:
    """Kill an import of `folder` into `database` at `kills` places spread over `events` events."""
    chance = random.Random(kills)
    for kill in range(kills):
        place = (kill + chance.random()) * events / kills
        if not _killed_after(1 + int(place), folder, database, chance.choice([1, 60, 4000])):
            sys.exit(f"the import ended before kill {kill + 1}")


def _killed_after(events: int, folder: Path, database: Path, characters: int) -> bool:
    """Import in groups of so many characters, and kill that after so many events."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        intake.GROUP_CHARACTERS = characters
        for _ in import_paths([folder], Library.open(database)):
            os.write(tell, b".")
        os._exit(0)
    os.close(tell)
    seen = sum(bool(os.read(told, 1)) for _ in range(events))
    os.close(told)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return seen == events and os.WIFSIGNALED(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
