"""Files written for the person: their names, and what is said where they cannot be written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from datastores.errors import InputError
from datastores.files import swap_in

STEM_LENGTH = 60
"""Characters of a file name made of a title, without its ending."""


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write a whole file or none; others cannot read it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        swap_in(path, pieces)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def free_path(title: str, suffix: str) -> Path:
    """A path named after `title` at which nothing stands yet.

    It is in the working directory, or in the home directory where that cannot be written.
    """
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path.home()
    stem = "-".join(re.findall(r"\w+", title.lower()))[:STEM_LENGTH].strip("-") or "chat"
    path, number = folder / f"{stem}{suffix}", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}{suffix}", number + 1
    return path
