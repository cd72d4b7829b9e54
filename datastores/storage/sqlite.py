"""One SQLite file, opened the way every store here is opened.

Owns: opening (WAL, busy timeout, foreign keys, secure delete), numbered migrations, and short write
transactions. Refuses to know any table.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage.integrity import (
    DamagedError,
    quarantine,
    require_usable,
    schema_version,
    translate_errors,
)

Migration = Callable[[Database], None]
Parameters = Sequence[object] | Mapping[str, object]

BUSY_TIMEOUT_S = 10.0
"""How long a statement waits for another process's transaction; ours last milliseconds."""


class Store:
    """An open database. Threads may share it; one statement or transaction runs at a time.

    Attributes:
        path: the file.
        db: the sqlite-utils database over it; write only inside `writing()`.
        quarantined: where a damaged predecessor was moved to when this one was opened, else None.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration]) -> None:
        """Open `path`, create it if missing, and bring it to version len(migrations).

        Raises:
            StoreError: unreadable, read-only, full disk, or written by a newer version (untouched).
        """
        self.path = path
        self.quarantined: Path | None = None
        self._lock = threading.RLock()
        with open_lock(path), translate_errors(path):
            try:
                require_usable(path, len(migrations))
            except DamagedError:
                self.quarantined = quarantine(path)
            self.db = _opened(path, migrations)
            self._identity = file_identity(path)

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """One transaction, all or nothing; it takes the write lock at once (BEGIN IMMEDIATE)."""
        with self._lock, translate_errors(self.path):
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
        with self._lock, translate_errors(self.path):
            cursor = self.db.conn.execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def rewrite(self) -> None:
        """Write the whole file anew, without free pages and gaps (VACUUM)."""
        with self._lock, translate_errors(self.path):
            self._must_be_in_place()
            self.db.conn.execute("VACUUM")

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        with self._lock, translate_errors(self.path):
            self.db.close()

    def _must_be_in_place(self) -> None:
        """Refuse to write into a file that was moved or deleted under us: nobody would find it."""
        if file_identity(self.path) != self._identity:
            raise StoreError(f"{self.path} was moved or deleted while in use: start specchat again")


@contextmanager
def open_lock(path: Path) -> Iterator[None]:
    """Hold the file's opening lock, so that two processes never migrate or set aside at once."""
    lock = FileLock(f"{path}.lock", timeout=BUSY_TIMEOUT_S)
    try:
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


def _opened(path: Path, migrations: Sequence[Migration]) -> Database:
    """Connect, configure and migrate; the connection is closed again on any failure."""
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _configure(connection)
        db = Database(connection, recursive_triggers=False, execute_plugins=False)
        _migrate(db, migrations)
    except BaseException:
        connection.close()
        raise
    return db


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # What is deleted must not be found in the file again, nor in a temporary one.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")


def _migrate(db: Database, migrations: Sequence[Migration]) -> None:
    """Run the migrations that are still missing, each in a transaction with its number."""
    for number, migration in enumerate(migrations, start=1):
        if schema_version(db.conn) >= number:
            continue
        with db.atomic():
            migration(db)
            db.conn.execute(f"PRAGMA user_version = {number}")


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one put in its place; None where there is none.

    Raises:
        StoreError: it cannot be told.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; move it away") from error
    return status.st_dev, status.st_ino
