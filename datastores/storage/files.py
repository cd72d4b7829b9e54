"""Files put in place whole or not at all. Refuses to know what is in them and where they belong."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_atomic(
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
