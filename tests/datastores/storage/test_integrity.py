"""Looking at a database does not disturb those who have it open."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage import integrity
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store

WRITER = """
import sys
from pathlib import Path
from datastores.storage.sqlite import Store
from tests.datastores.storage.test_integrity import NOTES
store = Store(Path(sys.argv[1]), NOTES)
with store.writing() as db:
    db.table("notes").insert({"text": "written elsewhere"})
store.close()
"""


def notes(db: Database) -> None:
    db.executescript("CREATE TABLE notes (text TEXT)")


def more(db: Database) -> None:
    notes(db)
    db.executescript("CREATE TABLE more (text TEXT)")


NOTES, MORE = Schema(1, notes), Schema(2, more, frozenset({"notes"}))


def test_opening_a_database_twice_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    log = tmp_path / "a.db-wal"
    with closing(Store(path, NOTES)) as first:
        Store(path, NOTES).close()
        subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True)
        # The last to close folds the log away: another process must not take itself for that.
        assert log.stat().st_size > 0
        assert first.rows("SELECT text FROM notes") == [{"text": "written elsewhere"}]
        with closing(Store(path, NOTES)) as second:
            assert second.rows("SELECT text FROM notes") == [{"text": "written elsewhere"}]


def test_an_interrupted_checkpoint_is_no_damage(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "interrupted.db"
    rows = [{"text": f"{number:04} " * 200} for number in range(100)]
    with closing(Store(whole, NOTES)) as store:
        store.db.conn.execute("PRAGMA wal_autocheckpoint = 0")
        with store.writing() as db:
            db.table("notes").insert_all(rows)
        shutil.copy(whole, path)
        shutil.copy(f"{whole}-wal", f"{path}-wal")
        page_bytes = store.rows("PRAGMA page_size")[0]["page_size"]
    with whole.open("rb") as done, path.open("rb+") as interrupted:
        interrupted.write(done.read(page_bytes))
    with closing(Store(path, NOTES)) as store:
        assert store.quarantined is None
        assert store.rows("SELECT text FROM notes") == rows


def test_a_database_that_lost_its_end_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(Store(path, NOTES)) as store, store.writing() as db:
        db.table("notes").insert_all({"text": "long " * 200} for _ in range(100))
    with path.open("rb+") as file:
        file.truncate(8192)
    with closing(Store(path, NOTES)) as store:
        assert store.quarantined is not None
        assert store.rows("SELECT text FROM notes") == []


def test_a_log_without_the_missing_pages_hides_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "MAX_CHECKED_BYTES", 1)
    path = tmp_path / "a.db"
    with closing(Store(path, NOTES)) as store, store.writing() as db:
        db.table("notes").insert_all({"text": "long " * 200} for _ in range(100))
    with closing(Store(path, NOTES)) as store:
        with store.writing() as db:
            db.table("notes").insert({"text": "one more"})
        log = Path(f"{path}-wal").read_bytes()
    with path.open("rb+") as file:
        file.truncate(16_384)
    Path(f"{path}-wal").write_bytes(log)
    with closing(Store(path, NOTES)) as store:
        assert store.quarantined is not None


@pytest.mark.parametrize(
    ("code", "free", "advice"),
    [
        (sqlite3.SQLITE_IOERR_SHMSIZE, 0, "the disk is full; free some space and try again"),
        (sqlite3.SQLITE_IOERR_WRITE, 10**9, "writing it failed; free some space, or check the"),
        (sqlite3.SQLITE_IOERR_READ, 10**9, "reading or writing it failed; check the disk"),
    ],
)
def test_a_full_disk_is_named_whatever_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, free: int, advice: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = code
    path = tmp_path / "notes.db"
    with pytest.raises(StoreError, match=advice), integrity.translate_errors(path):
        raise failure


def test_looking_at_a_sound_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    path = tmp_path / "notes.db"
    Store(path, NOTES).close()
    monkeypatch.setattr(Path, "unlink", read_only)
    integrity.require_usable(path, 1)
    integrity.require_usable(tmp_path / "none.db", 1)


def test_a_pipe_in_the_place_of_a_database_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "notes.db")
    with pytest.raises(StoreError, match="is a pipe or a device where a file belongs"):
        Store(tmp_path / "notes.db", NOTES)


UNFIT = {
    "a table is gone": "DROP TABLE notes",
    "a column is gone": "ALTER TABLE notes RENAME COLUMN text TO words",
    "its version is gone": "PRAGMA user_version = 0",
    "its version is absurd": "PRAGMA user_version = -5",
    "it is another program's": "DROP TABLE notes; CREATE TABLE x (a); PRAGMA user_version = 0",
    "another's of the same version": "DROP TABLE notes; CREATE TABLE x (a)",
}


@pytest.mark.parametrize("statements", UNFIT.values(), ids=UNFIT)
def test_a_database_whose_tables_are_not_those_of_its_version_is_set_aside(
    tmp_path: Path, statements: str
) -> None:
    path = tmp_path / "a.db"
    Store(path, NOTES).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    with closing(Store(path, MORE)) as store:
        assert store.quarantined is not None
        assert store.rows("SELECT text FROM notes") == store.rows("SELECT text FROM more") == []


def test_a_database_whose_version_was_reset_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(Store(path, MORE)) as store, store.writing() as db:
        db.table("more").insert({"text": "kept"})
        db.conn.execute("PRAGMA user_version = 1")
    with closing(Store(path, MORE)) as store:
        assert store.rows("SELECT text FROM more") == [{"text": "kept"}]


def test_an_index_that_lost_its_entries_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(Store(path, NOTES)) as store, store.writing() as db:
        db.table("notes").insert_all({"text": f"{number}"} for number in range(9))
        db.table("notes").create_index(["text"])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode = DELETE")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE type = 'index'"
        root = connection.execute(query).fetchone()[0]
    with path.open("rb+") as file:
        file.seek(size * (root - 1) + 3)
        file.write(bytes(2) + size.to_bytes(2, "big"))  # no cells, all of it free
    with closing(Store(path, NOTES)) as store:
        assert store.quarantined is not None
