"""Files written for the person, outside specchat's own directories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from datastores.errors import InputError

STEM_LENGTH = 60
"""Characters of a file name made of a title, without its ending."""


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write a whole file or none; others cannot read it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            try:
                file.writelines(pieces)
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
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
