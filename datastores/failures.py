"""What SQLite reports, in one line that names the file and the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from datastores.errors import StoreError

_ADVICE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full; make room, then go on",
    sqlite3.SQLITE_BUSY: "another process keeps it locked; try again",
    sqlite3.SQLITE_READONLY: "it is read-only; make it writable or use --data-dir",
    sqlite3.SQLITE_PERM: "permission denied; make it accessible or use --data-dir",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check its permissions or use --data-dir",
    sqlite3.SQLITE_IOERR: "reading or writing it failed; check the disk",
    sqlite3.SQLITE_CORRUPT: "it is damaged; the next start sets it aside and begins a new one",
    sqlite3.SQLITE_NOTADB: "it is damaged; the next start sets it aside and begins a new one",
}


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Raise StoreError for whatever SQLite raises on the file at `path`.

    Damage found while working leaves a mark, so that the next opening checks the whole file.
    """
    try:
        yield
    except sqlite3.Error as error:
        if means_damage(error):
            _mark(path, "")
        raise StoreError(f"{path}: {_ADVICE.get(_code(error), str(error))}") from error


def means_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite found the file's content broken."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def damage_mark(path: Path) -> Path:
    """The file that says: damage was met in `path`. Empty, where SQLite met it and can find it
    again."""
    return path.with_name(f"{path.name}.damaged")


def damaged(path: Path, what: str) -> StoreError:
    """The error to raise where `what` stands in rows that are sound to SQLite: it is noted, as no
    check finds it again. For stores that can be made again."""
    _mark(path, what)
    return StoreError(f"{path} holds {what}: {_ADVICE[sqlite3.SQLITE_CORRUPT]}")


def _mark(path: Path, what: str) -> None:
    # Where nothing can be written, nothing can be repaired either: the error itself says enough.
    with suppress(OSError):
        damage_mark(path).write_text(what)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their low byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
