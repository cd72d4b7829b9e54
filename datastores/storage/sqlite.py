"""One SQLite file, opened the way every store here is opened.

This covers WAL, busy timeout, foreign keys, secure delete, the functions of the search form, the
conversion of files of earlier versions, and short write transactions. A file is checked and
converted when this process first opens it, so that each further connection takes a fraction of a
millisecond.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from filelock import FileLock
from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage.files import PRIVATE_FILE, make_private
from datastores.storage.functions import add_functions
from datastores.storage.integrity import (
    LOGS,
    DamagedError,
    damage_mark,
    is_busy,
    quarantine,
    require_usable,
    schema_version,
    translate_errors,
)
from datastores.storage.schema import Schema, convert, table_columns

Parameters = Sequence[object] | Mapping[str, object]

BUSY_TIMEOUT_S = 60.0
"""Longest wait of a statement for another connection's transaction. Ours last milliseconds, except
erasing: writers waited up to 14 s for 100 MB, on two overloaded cores."""
OPEN_TIMEOUT_S = 10.0
"""Longest wait for another process that checks or converts the file."""
BUSY_POLL_S = 0.002
"""Interval of attempts to start a transaction."""


class Store:
    """An open database. Threads may share it; one statement or transaction runs at a time.

    Attributes:
        db: the sqlite-utils database; write only inside `writing()`.
        quarantined: new path of a damaged predecessor; None if there was none.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open `path`, create it if missing, and convert it if its version is an earlier one.

        Raises:
            StoreError: unreadable, read-only, full disk, or written by a newer version (untouched).
        """
        self.path = path
        self.quarantined: Path | None = None
        self._schema = schema
        self._lock = threading.RLock()
        with translate_errors(path):
            connection = _connected_again(path, schema.version)
        if connection is None:
            with open_lock(path), translate_errors(path):
                try:
                    require_sound(path, schema)
                except DamagedError:
                    self.quarantined = quarantine(path)
                if not path.exists():
                    _create(path, schema)
                _make_private(path)
                connection = _connected(path, schema)
        self.db = connection
        self._identity = file_identity(path)
        self._file = _register(self, self._identity, schema.version)

    def new_connection(self) -> Store:
        """Another connection to the same file, e.g. for another thread."""
        return Store(self.path, self._schema)

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """A transaction, which takes the write lock at once (BEGIN IMMEDIATE)."""
        with self._lock, translate_errors(self.path):
            self._require_in_place()
            _begin(self.db.conn)
            try:
                _reload_schema(self.db.conn)
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

    def vacuum(self) -> None:
        """Rewrite the whole file without free pages and gaps, which blocks writers.

        The content is copied through a temporary file, since it might not fit into memory.
        """
        with self._lock, translate_errors(self.path):
            self._require_in_place()
            self.db.conn.execute("PRAGMA temp_store = FILE")
            try:
                self.db.conn.execute("VACUUM")
            finally:
                self.db.conn.execute("PRAGMA temp_store = MEMORY")

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        with self._lock, translate_errors(self.path):
            self.db.close()
        _unregister(self, self._file)

    def _require_in_place(self) -> None:
        """Reject writing into a file that was moved or deleted: the data would be lost."""
        if file_identity(self.path) != self._identity:
            raise StoreError(f"{self.path} was moved or deleted while in use: start specchat again")


def _begin(connection: sqlite3.Connection) -> None:
    """Take the write lock, waiting as long as the connection's busy timeout.

    It polls, since SQLite's own handler sleeps whole seconds if it was built without usleep.
    """
    timeout_ms = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    deadline = time.monotonic() + timeout_ms / 1000
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(BUSY_POLL_S)
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")


def _reload_schema(connection: sqlite3.Connection) -> None:
    """Let the connection notice first that another one rewrote the file (VACUUM).

    Otherwise SQLite notices it while it compiles the first statement whose trigger writes to an
    FTS5 table: connecting that table then drops the schema that the compilation is using, and the
    statement fails with "no such table" (seen with 3.40.1). Nothing changes it within a write
    transaction.
    """
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


class _OpenFile:
    """A database file that this process has open.

    Attributes:
        version: version of the schema it was opened with.
        stores: the open connections; garbage-collected ones disappear.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.stores: WeakSet[Store] = WeakSet()


_Identity = tuple[int, int] | None
_open_files: dict[_Identity, _OpenFile] = {}
_open_files_lock = threading.Lock()


def _register(store: Store, identity: _Identity, version: int) -> _OpenFile:
    with _open_files_lock:
        file = _open_files.setdefault(identity, _OpenFile(version))
        file.version = version
        file.stores.add(store)
        return file


def _unregister(store: Store, file: _OpenFile) -> None:
    with _open_files_lock:
        file.stores.discard(store)
        if not file.stores:
            for identity in [key for key, known in _open_files.items() if known is file]:
                del _open_files[identity]


def _connected_again(path: Path, version: int) -> Database | None:
    """A further connection to a file that this process has open at `version`.

    None if it has not, or if damage was found in it, so that the file must be checked.
    """
    try:
        identity = file_identity(path)
    except StoreError:
        # A first opening reports better why the file cannot be read.
        return None
    with _open_files_lock:
        file = _open_files.get(identity)
        usable = file is not None and file.version == version and bool(file.stores)
    if not usable or damage_mark(path).exists():
        return None
    connection = _connect(path, "rw")
    try:
        _configure(connection)
        if file_identity(path) == identity:
            return _database(connection)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


@contextmanager
def open_lock(path: Path) -> Iterator[None]:
    """Hold the file's opening lock, so that two processes never convert or quarantine at once."""
    lock = FileLock(f"{path}.lock", timeout=OPEN_TIMEOUT_S, mode=PRIVATE_FILE)
    try:
        lock.acquire()
    except OSError as error:
        reason = error.strerror or "another process holds its lock"
        # The cause may be the lock file rather than its folder.
        place = lock.lock_file if os.path.isdir(lock.lock_file) else path
        raise StoreError(
            f"cannot open {place}: {reason}; use --data-dir for another place"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _create(path: Path, schema: Schema) -> None:
    """Create the file under another name and move it, since an empty file counts as damaged.

    Raises:
        StoreError: the folder cannot be written.
    """
    place = Path(os.path.realpath(path))
    new = place.with_name(f"{place.name}.new")
    try:
        for suffix in ("", *LOGS):
            new.with_name(new.name + suffix).unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
        _connected(new, schema).close()
        new.rename(place)
    except OSError as error:
        raise StoreError(
            f"cannot create {path}: {error.strerror}; use --data-dir for another place"
        ) from error


def require_sound(path: Path, schema: Schema, *, whole: bool = False) -> None:
    """Raise unless `path` is missing, or a valid database with the tables of its version.

    Another program's database is rejected, whatever its version, as is one that lost a table.

    Args:
        whole: check the whole file, whatever its size.

    Raises:
        DamagedError: it should be quarantined.
        StoreError: it cannot be read, or was written by a newer specchat.
    """
    require_usable(path, schema.version, whole=whole)
    if not path.exists():
        return
    with closing(_connect(path, "ro")) as connection:
        version = schema_version(connection)
        try:
            found = table_columns(connection)
        except sqlite3.DatabaseError as error:  # also for an index without its own tables
            if is_busy(error):
                raise
            raise DamagedError from error
    if version < 1 or _columns_of(schema, earlier=version < schema.version) - found:
        raise DamagedError


def _columns_of(schema: Schema, *, earlier: bool) -> set[tuple[str, str]]:
    """The columns of a database with `schema`, or those that one of an `earlier` version must have:
    columns without a default in lasting tables."""
    with closing(memory_database().conn) as connection:
        _configure(connection)
        schema.create(_database(connection))
        if not earlier:
            return table_columns(connection)
        needed = table_columns(connection, "c.dflt_value IS NULL")
        return {(table, column) for table, column in needed if table in schema.lasting}


def _make_private(path: Path) -> None:
    """Make the file and its logs, to which SQLite gives its mode, readable for the owner only."""
    with suppress(OSError):  # SQLite reports better why the file cannot be written
        for suffix in ("", *LOGS):
            make_private(path.with_name(path.name + suffix))


def _connected(path: Path, schema: Schema) -> Database:
    """Connect, configure, create or convert; any failure closes the connection."""
    connection = _connect(path, "rwc")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        _configure(connection)
        db = _database(connection)
        if schema_version(connection) != schema.version:
            convert(db, schema)
    except BaseException:
        connection.close()
        raise
    return db


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def memory_database() -> Database:
    """An empty database in memory; threads that share it need their own lock."""
    return _database(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def connect_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection to an existing store, for any thread: decoding reads through one, and
    never waits for the writer. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )


def _database(connection: sqlite3.Connection) -> Database:
    return Database(connection, recursive_triggers=False, execute_plugins=False)


def _configure(connection: sqlite3.Connection) -> None:
    # One damaged byte of a text must not make its row unreadable.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    # Triggers call these, which some builds of SQLite reject by default.
    add_functions(connection)
    connection.execute("PRAGMA trusted_schema = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    # Deleted content must not remain in the file, nor in a temporary one.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")


def file_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, which change if another file is put in its place; None if it is missing.

    Raises:
        StoreError: the file's status cannot be read.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; move it away") from error
    return status.st_dev, status.st_ino
