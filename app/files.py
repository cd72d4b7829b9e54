"""Files put in place whole or not at all, and names for those written for the person."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from datastores.errors import InputError

STEM_LENGTH = 60
"""Characters of a file name made of a title, without its ending."""


def swap_in(
    path: Path, pieces: Iterable[str], *, newline: str | None = None, mode: int = 0o600
) -> None:
    """Put a new file in place of `path`; whatever happens, one of the two is there whole.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    with NamedTemporaryFile(
        "w",
        encoding="utf-8",
        newline=newline,
        dir=path.parent,
        prefix=f".{path.name}.",
        delete=False,
    ) as file:
        try:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.chmod(file.name, mode)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


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
