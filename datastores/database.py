"""One SQLite file, opened the way every store here is opened.

Owns: opening (WAL, busy timeout, foreign keys, secure delete), numbered migrations, setting a
damaged file aside, short write transactions, and the wording of what SQLite reports. Refuses to
know any table.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlite_utils import Database

from datastores.errors import StoreError

Migration = Callable[[Database], None]
Parameters = Sequence[object] | Mapping[str, object]

BUSY_SECONDS = 10.0
"""How long a statement waits for another process's transaction; ours last milliseconds."""

CHECKED_BYTES = 64 * 2**20
"""Up to this size the whole file is checked at every opening (about 2 ms per MiB at worst)."""


class Store:
    """An open database. Threads may share it; one statement or transaction runs at a time.

    Attributes:
        path: the file.
        db: the sqlite-utils database over it; write only inside `writing()`.
        set_aside: where a damaged predecessor was moved to when this one was opened, else None.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration]) -> None:
        """Open `path`, create it if missing, and bring it to version len(migrations).

        Raises:
            StoreError: unreadable, read-only, full disk, or written by a newer version (untouched).
        """
        self.path = path
        self.set_aside: Path | None = None
        self._lock = threading.RLock()
        with opening(path):
            try:
                self.db = _opened(path, migrations)
            except _DamagedError:
                self.set_aside = set_aside(path)
                self.db = _opened(path, migrations)
            self._identity = _identity(path)

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """One transaction, all or nothing; it takes the write lock at once (BEGIN IMMEDIATE)."""
        with self._lock, named_errors(self.path):
            self._must_be_in_place()
            self.db.conn.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.conn.execute("COMMIT")
            finally:
                if self.db.conn.in_transaction:
                    self.db.conn.execute("ROLLBACK")

    def rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """All rows of a SELECT, as dictionaries."""
        with self._lock, named_errors(self.path):
            cursor = self.db.conn.execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        with self._lock, named_errors(self.path):
            self.db.close()

    def _must_be_in_place(self) -> None:
        """Refuse to write into a file that was moved or deleted under us: nobody would find it."""
        if not self.path.exists() or _identity(self.path) != self._identity:
            raise StoreError(f"{self.path} was moved or deleted while in use: start specchat again")


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Hold the file's opening lock, so that two processes never migrate or set aside at once."""
    try:
        lock = FileLock(f"{path}.lock", timeout=BUSY_SECONDS)
        lock.acquire()
    except OSError as error:
        reason = error.strerror or "another process holds its lock"
        raise StoreError(
            f"cannot open {path}: {reason}; use --data-dir for another place"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Translate what SQLite raises into one line that names the file and the way out.

    Damage found while working leaves a mark, so that the next opening checks the whole file.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = _code(error)
        if code in _DAMAGE:
            _damage_mark(path).touch()
        advice = _ADVICE.get(code, str(error))
        raise StoreError(f"{path}: {advice}") from error


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
    _damage_mark(path).unlink(missing_ok=True)
    return aside


class _DamagedError(Exception):
    """The file is no database, or its check failed. Internal: it ends in `Store.set_aside`."""


def _opened(path: Path, migrations: Sequence[Migration]) -> Database:
    """Connect, check, configure and migrate; the connection is closed again on any failure."""
    with named_errors(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _check(connection, path, len(migrations))
            _configure(connection)
            db = Database(connection, recursive_triggers=False, execute_plugins=False)
            _migrate(db, migrations)
        except BaseException:
            connection.close()
            raise
        return db


def _check(connection: sqlite3.Connection, path: Path, known: int) -> None:
    """Refuse a newer version before anything is written; find damage where that is cheap."""
    try:
        version = _version(connection)
        if version > known:
            raise StoreError(
                f"{path} has version {version} and this specchat knows up to {known}: "
                "upgrade specchat; nothing was changed"
            )
        _check_pages(connection, path)
    except sqlite3.DatabaseError as error:
        if _code(error) in _DAMAGE:
            raise _DamagedError from error
        raise


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    mark = _damage_mark(path)
    if path.stat().st_size > CHECKED_BYTES and not mark.exists():
        return
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise _DamagedError
    mark.unlink(missing_ok=True)


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # What is deleted must not be found in the file again, nor in a temporary one.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")


def _migrate(db: Database, migrations: Sequence[Migration]) -> None:
    """Run the migrations that are still missing, each in a transaction with its number."""
    for number, migration in enumerate(migrations, start=1):
        if _version(db.conn) >= number:
            continue
        with db.atomic():
            migration(db)
            db.conn.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _damage_mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their low byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

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
