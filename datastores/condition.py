"""The condition of a database file before it is opened: its version, its damage, and where damaged
files go. Changes no byte of what it looks at.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from datastores.errors import StoreError
from datastores.failures import damage_mark, means_damage

CHECKED_BYTES = 64 * 2**20
"""Up to this size the whole file is checked at every opening; beyond it, after damage was met."""

_HEADER = b"SQLite format 3\0"


class DamagedError(Exception):
    """The file is no database, or its check failed. Internal: it ends in `set_aside`."""


def require_usable(path: Path, known: int) -> None:
    """Raise unless `path` is missing, empty, or a sound database of at most version `known`.

    SQLite itself would delete the log of a file whose header is damaged, and would fold that of any
    other into it: hence the look at the header, and a connection that can only read.

    Raises:
        DamagedError: it is to be set aside.
        StoreError: it cannot be read, or a newer specchat wrote it.
    """
    header = _header(path)
    if not header:
        return
    if header != _HEADER:
        raise DamagedError
    with closing(_reading(path)) as connection:
        try:
            _require_known(connection, path, known)
            _require_sound(connection, path)
        except sqlite3.DatabaseError as error:
            if means_damage(error):
                raise DamagedError from error
            raise


def set_aside(path: Path) -> Path:
    """Move a damaged database and its write-ahead log to NAME.corrupt-TIME; never overwrite."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside, number = path.with_name(f"{path.name}.corrupt-{stamp}"), 1
    while aside.exists():
        aside, number = path.with_name(f"{path.name}.corrupt-{stamp}-{number}"), number + 1
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    damage_mark(path).unlink(missing_ok=True)
    return aside


def version(connection: sqlite3.Connection) -> int:
    """How many migrations the file has seen."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _header(path: Path) -> bytes:
    """The file's first bytes; none where there is no file yet, or nothing in it."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER))
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}; use --data-dir for another place"
        ) from error


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _require_known(connection: sqlite3.Connection, path: Path, known: int) -> None:
    found = version(connection)
    if found > known:
        raise StoreError(
            f"{path} has version {found} and this specchat knows up to {known}: "
            "upgrade specchat; nothing was changed"
        )


def _require_sound(connection: sqlite3.Connection, path: Path) -> None:
    mark = damage_mark(path)
    if path.stat().st_size > CHECKED_BYTES and not mark.exists():
        return
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise DamagedError
    mark.unlink(missing_ok=True)
