"""The integrity of a database file: errors with advice, checks, quarantine and checksums.

Damage is found before a file is opened, or marked if SQLite meets it later; the damaged file is
moved aside, never overwritten. A check changes no byte of the file. SQLite checks the structure of
its pages, not their content: blobs that need it carry a checksum.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from glob import escape
from pathlib import Path

from datastores.errors import StoreError
from datastores.storage.functions import forget_raised, raise_again

MIN_FREE_BYTES = 1_000_000
"""Free space below which a disk counts as full: a log takes more."""
_WRITING = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
)

_ADVICE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space and try again",
    sqlite3.SQLITE_BUSY: "another process keeps it locked; try again",
    sqlite3.SQLITE_READONLY: "it is read-only; make it writable or use --data-dir",
    sqlite3.SQLITE_PERM: "permission denied; make it accessible or use --data-dir",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check its permissions or use --data-dir",
    sqlite3.SQLITE_IOERR: "reading or writing it failed; check the disk",
    sqlite3.SQLITE_CORRUPT: "it is damaged; the next start sets it aside and begins a new one",
    sqlite3.SQLITE_NOTADB: "it is damaged; the next start sets it aside and begins a new one",
}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise StoreError for any SQLite error on the file at `path`.

    Damage is marked, so that the next opening checks the whole file. Exceptions of our own SQL
    functions, Ctrl-C above all, are raised unchanged.
    """
    forget_raised()
    try:
        yield
    except sqlite3.Error as error:
        raise_again(error)
        if means_damage(error):
            _mark(path, "")
        raise StoreError(f"{path}: {_advice(path, error)}") from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged name in its message.
        _mark(path, "")
        raise StoreError(f"{path}: {_ADVICE[sqlite3.SQLITE_CORRUPT]}") from error


def _advice(path: Path, error: sqlite3.Error) -> str:
    """Advice for an error. SQLite reports a full disk, a quota or a limit on file sizes as a failed
    write, unless it was writing the database itself."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if _code(error) == sqlite3.SQLITE_IOERR:
        with suppress(OSError):  # the folder itself is missing
            if shutil.disk_usage(path.parent).free < MIN_FREE_BYTES:
                return _ADVICE[sqlite3.SQLITE_FULL]
        if code in _WRITING:
            return "writing it failed; free some space, or check the disk"
    return _ADVICE.get(_code(error), str(error))


def means_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite found the file damaged."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock that was needed."""
    return _code(error) == sqlite3.SQLITE_BUSY


def damage_mark(path: Path) -> Path:
    """The file that marks `path` as damaged; empty if SQLite can find the damage again."""
    return path.with_name(f"{path.name}.damaged")


def damage_error(path: Path, what: str) -> StoreError:
    """The error for damage (`what`) in rows that SQLite considers valid.

    It is marked, since no check would find it again. For stores that can be rebuilt.
    """
    _mark(path, what)
    return StoreError(f"{path} holds {what}: {_ADVICE[sqlite3.SQLITE_CORRUPT]}")


def _mark(path: Path, what: str) -> None:
    # Where nothing can be written, nothing can be repaired either: the error itself suffices.
    with suppress(OSError):
        damage_mark(path).write_text(what)


def _unmark(path: Path) -> None:
    if damage_mark(path).exists():  # deleting a missing file fails in a read-only folder
        damage_mark(path).unlink()


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their low byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


MAX_CHECKED_BYTES = 16 * 2**20
"""Size up to which a file is checked whenever it is opened; a larger one only if something looks
wrong. The check reads the whole file with its indexes: 0.2 s of CPU for each 100 MB."""

MIN_DATABASE_BYTES = 512
"""A shorter file is not a database, although SQLite would accept it as an empty one."""


REBUILT = ".rebuilt"
"""Suffix of the note that a damaged cache was deleted (`rebuilt_note`)."""

LOGS = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps with a database in use."""


class DamagedError(Exception):
    """The file is not a database, or its check failed; it should be quarantined."""


def require_usable(path: Path, known: int, *, whole: bool = False) -> None:
    """Raise unless `path` is missing, or a valid database of at most version `known`.

    An empty file counts as damaged, since databases are created under another name and moved.

    SQLite itself would delete the log of a file whose header is damaged, and would fold that of any
    other file into it: hence the check of the header, and a read-only connection.

    Args:
        whole: check the whole file, whatever its size.

    Raises:
        DamagedError: it should be quarantined.
        StoreError: it cannot be read, or was written by a newer specchat.
    """
    if not _is_there(path):
        _unmark(path)
        return
    try:
        lacks_pages = _lacks_pages(path)
        with closing(_read_only(path)) as connection:
            _require_known(connection, path, known)
            _require_sound(connection, path, always=whole or lacks_pages)
    except UnicodeDecodeError as error:  # SQLite quotes a damaged name in its message
        raise DamagedError from error
    except sqlite3.DatabaseError as error:
        if means_damage(error):
            raise DamagedError from error
        raise


def quarantine(path: Path) -> Path:
    """Move a damaged database and its write-ahead log to NAME.corrupt-TIME; never overwrite."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside, number = path.with_name(f"{path.name}.corrupt-{stamp}"), 1
    while aside.exists():
        aside, number = path.with_name(f"{path.name}.corrupt-{stamp}-{number}"), number + 1
    for suffix in (*LOGS, ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    damage_mark(path).unlink(missing_ok=True)
    return aside


def quarantined_files(path: Path) -> list[Path]:
    """The files that `quarantine` moved away from `path` and that still exist, oldest first."""
    found = path.parent.glob(f"{escape(path.name)}.corrupt-*")
    return sorted(one for one in found if not one.name.endswith(LOGS))


def discard_quarantined(path: Path) -> None:
    """Delete the files that `quarantine` moved away from `path`, which can be made again and may
    hold deleted text. `rebuilt_note` then tells the user."""
    if quarantined_files(path):
        rebuilt_note(path).touch(mode=0o600)
    for part in path.parent.glob(f"{escape(path.name)}.corrupt-*"):
        part.unlink()


def rebuilt_note(path: Path) -> Path:
    """The file that records that the damaged cache at `path` was deleted and is built again."""
    return path.with_name(f"{path.name}{REBUILT}")


def schema_version(connection: sqlite3.Connection) -> int:
    """The schema version of the file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_there(path: Path) -> bool:
    """Whether the file exists.

    Raises:
        StoreError: it is not a regular file, or is not readable.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        _require_link_target(path)
        return False
    except OSError as error:
        raise _unreadable(path, error.errno) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
        raise StoreError(
            f"{path} is {kind} where a file belongs: move it away, or use --data-dir for another"
            " place"
        )
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _unreadable(path, errno.EACCES)
    return True


def _require_link_target(path: Path) -> None:
    """Raise StoreError if `path` links to a missing folder, such as a disk that is not mounted."""
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not target.parent.is_dir():
        raise StoreError(
            f"{path} is a link to {target}, and {target.parent} does not exist: restore it, or"
            " delete the link"
        )


def _lacks_pages(path: Path) -> bool:
    """Whether the file is shorter than its header says; its log is not read.

    A checkpoint, running or interrupted, writes the first page first: until it is complete, the log
    has the pages that the file lacks.

    SQLite must read the header: if other code opened and closed the file, POSIX would drop every
    lock of this process on it, and another process would fold the log into the file and delete it
    under the connections that are open here.

    Raises:
        DamagedError, sqlite3.DatabaseError: the file has no database header.
    """
    if path.stat().st_size < MIN_DATABASE_BYTES:
        raise DamagedError
    with closing(_read_only(path, "&immutable=1")) as connection:
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.DatabaseError as error:
            if _code(error) != sqlite3.SQLITE_CORRUPT:
                raise
            return True
    return False


def _unreadable(path: Path, code: int | None) -> StoreError:
    if code == errno.ELOOP:
        return StoreError(f"{path} is a link that leads back to itself: delete the link")
    reason = os.strerror(code or 0)
    return StoreError(f"cannot read {path}: {reason}; use --data-dir for another place")


def _read_only(path: Path, options: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{options}", uri=True)


def _require_known(connection: sqlite3.Connection, path: Path, known: int) -> None:
    found = schema_version(connection)
    if found > known:
        raise StoreError(
            f"{path} has version {found} and this specchat knows up to {known}: "
            "upgrade specchat; nothing was changed"
        )


def _require_sound(connection: sqlite3.Connection, path: Path, *, always: bool) -> None:
    mark = damage_mark(path)
    if mark.exists() and mark.read_text():
        raise DamagedError
    if path.stat().st_size > MAX_CHECKED_BYTES and not (always or mark.exists()):
        return
    if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
        raise DamagedError
    _unmark(path)


CHECKSUM_BYTES = 32
"""SHA-256."""


def with_checksum(owner: str, body: bytes) -> bytes:
    """`body`, preceded by a checksum over `owner` and `body`."""
    return _checksum(owner, body) + body


def verify_checksum(owner: str, blob: bytes) -> bytes:
    """The body that `with_checksum` was given.

    Raises:
        ValueError: it is damaged, or belongs to another owner.
    """
    body = blob[CHECKSUM_BYTES:]
    if _checksum(owner, body) != blob[:CHECKSUM_BYTES]:
        raise ValueError(f"wrong checksum for {owner}")
    return body


def _checksum(owner: str, body: bytes) -> bytes:
    return hashlib.sha256(owner.encode() + b"\n" + body).digest()
