"""Opening a database: settings, conversion of earlier versions, and every way it can fail."""

from __future__ import annotations

import functools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage import functions, sqlite
from datastores.storage.integrity import MAX_CHECKED_BYTES, damage_mark, require_usable
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store
from tests.datastores.conftest import fill, remount


def _notes(db: Database) -> None:
    db.executescript("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT)")


def _authored(db: Database) -> None:
    db.executescript(
        """
        CREATE TABLE authors (name TEXT PRIMARY KEY);
        INSERT INTO authors VALUES ('nobody');
        CREATE TABLE notes (
            author TEXT NOT NULL DEFAULT 'nobody' REFERENCES authors(name),
            text TEXT,
            id INTEGER PRIMARY KEY AUTOINCREMENT
        );
        CREATE VIRTUAL TABLE words USING fts5(text, content = '');
        CREATE TRIGGER added AFTER INSERT ON notes BEGIN
            INSERT INTO words (rowid, text) VALUES (new.id, new.text);
        END;
        """
    )


def _broken(db: Database) -> None:
    db.executescript("CREATE TABLE extra (id INTEGER PRIMARY KEY)")
    raise RuntimeError("in the middle of a conversion")


LASTING = frozenset({"notes"})
NOTES = Schema(1, _notes)
AUTHORED = Schema(2, _authored, LASTING)
BROKEN = Schema(2, _broken)


def _add(store: Store, *texts: str) -> None:
    with store.writing() as db:
        db.table("notes").insert_all({"text": text} for text in texts)


def _add_and_fail(store: Store) -> None:
    with store.writing() as db:
        db.table("notes").insert({"text": "gone"})
        raise KeyError


def _texts(store: Store) -> list[str]:
    return [row["text"] for row in store.rows("SELECT text FROM notes ORDER BY id")]


def _pragma(store: Store, name: str) -> object:
    return store.rows(f"PRAGMA {name}")[0][name]


def _made(path: Path, schema: Schema, *texts: str) -> None:
    store = Store(path, schema)
    _add(store, *texts)
    store.close()


def test_a_store_is_opened_durable_strict_and_forgetful(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_waiting_for_the_disk: Callable[[sqlite3.Connection], None],
) -> None:
    monkeypatch.setattr("datastores.storage.sqlite._configure", no_waiting_for_the_disk)
    store = Store(tmp_path / "a.db", NOTES)
    assert _pragma(store, "journal_mode") == "wal"
    assert _pragma(store, "foreign_keys") == 1
    assert _pragma(store, "secure_delete") == 1
    assert _pragma(store, "synchronous") == 2
    store.close()


def test_a_file_is_rewritten_by_way_of_another_not_of_the_memory(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "a.db", NOTES)) as store:
        statements: list[str] = []
        store.db.conn.set_trace_callback(statements.append)
        store.vacuum()
        store.db.conn.set_trace_callback(None)
        before = statements[: statements.index("VACUUM")]
        assert [one for one in before if "temp_store" in one][-1] == "PRAGMA temp_store = FILE"
        assert _pragma(store, "temp_store") == 2, "what else is temporary stays in memory"


def test_a_file_of_an_earlier_version_keeps_what_both_versions_have(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, NOTES, "kept", "gone")
    with closing(Store(path, NOTES)) as older, older.writing() as db:
        db.conn.execute("DELETE FROM notes WHERE text = 'gone'")
        db.conn.execute("CREATE TABLE dropped (id)")
    for count in (1, 2):
        store = Store(path, AUTHORED)
        kept = {"id": 1, "text": "kept", "author": "nobody"}
        assert store.rows("SELECT * FROM notes WHERE text = 'kept'") == [kept]
        assert store.rows("SELECT rowid FROM words WHERE words MATCH 'kept'") == [{"rowid": 1}]
        assert store.rows("SELECT name FROM sqlite_schema WHERE name = 'dropped'") == []
        assert _pragma(store, "user_version") == 2
        assert _pragma(store, "foreign_keys") == 1
        _add(store, "another")
        assert store.rows("SELECT max(id) AS last FROM notes")[0]["last"] == 2 + count
        store.close()


def test_a_cache_of_an_earlier_version_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, NOTES, "old")
    with closing(Store(path, Schema(2, _authored, LASTING, cache=True))) as store:
        assert _texts(store) == []
        assert store.quarantined is None
        _add(store, "new")
    assert b"old" not in path.read_bytes()


def test_a_failing_conversion_leaves_the_version_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, NOTES, "kept")
    with pytest.raises(RuntimeError):
        Store(path, BROKEN)
    store = Store(path, NOTES)
    assert _pragma(store, "user_version") == 1
    assert store.rows("SELECT name FROM sqlite_schema WHERE name = 'extra'") == []
    assert _texts(store) == ["kept"]
    store.close()


def test_a_newer_version_is_refused_by_number_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, AUTHORED, "kept")
    before = {entry: entry.read_bytes() for entry in tmp_path.glob("a.db*")}
    with pytest.raises(StoreError, match=r"a\.db has version 2 .* up to 1.*nothing was changed"):
        Store(path, NOTES)
    assert {entry: entry.read_bytes() for entry in before} == before


@pytest.mark.parametrize("damage", [b"no database" * 999, b"x"], ids=["long", "short"])
def test_a_file_that_is_not_a_database_is_quarantined(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(damage)
    (tmp_path / "a.db-wal").write_bytes(b"old log")
    store = Store(path, NOTES)
    assert store.quarantined is not None
    assert store.quarantined.name.startswith("a.db.corrupt-")
    assert store.quarantined.read_bytes() == damage
    assert store.quarantined.with_name(store.quarantined.name + "-wal").read_bytes() == b"old log"
    _add(store, "fresh")
    assert _texts(store) == ["fresh"]
    store.close()


def test_damage_within_is_found_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, NOTES, *("a note " * 50 for _ in range(200)))
    _damage(path)
    damaged = path.read_bytes()
    store = Store(path, NOTES)
    assert store.quarantined is not None
    assert store.quarantined.read_bytes() == damaged
    assert _texts(store) == []
    store.close()


def test_a_file_is_checked_once_for_as_long_as_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    checked: list[Path] = []

    def require(path: Path, known: int, *, whole: bool) -> None:
        checked.append(path)
        require_usable(path, known, whole=whole)

    monkeypatch.setattr(sqlite, "require_usable", require)
    with closing(Store(path, NOTES)) as store:
        with closing(store.new_connection()) as other, closing(Store(path, NOTES)):
            _add(store, "seen")
            assert _texts(other) == ["seen"]
            assert _pragma(other, "foreign_keys") == 1
            assert _pragma(other, "secure_delete") == 1
        assert len(checked) == 1
        damage_mark(path).touch()
        store.new_connection().close()
        assert len(checked) == 2, "damage was found meanwhile"
        Store(path, AUTHORED).close()
        assert len(checked) == 3, "the file was not at this version"
    Store(path, AUTHORED).close()
    assert len(checked) == 4, "nobody had it open"


def test_another_file_in_its_place_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(Store(path, NOTES)):
        path.rename(tmp_path / "b.db")
        path.write_bytes(b"no database" * 999)
        with closing(Store(path, NOTES)) as other:
            assert other.quarantined is not None


def test_what_was_quarantined_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for number in range(3):
        path.write_bytes(b"damage number %d" % number * 100)
        Store(path, NOTES).close()
    kept = sorted(entry.read_bytes() for entry in tmp_path.glob("a.db.corrupt-*"))
    assert [content[:15] for content in kept] == [b"damage number %d" % n for n in range(3)]


def test_damage_found_while_working_is_quarantined_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _made(path, NOTES, *("a note " * 500 for _ in range(MAX_CHECKED_BYTES // 3500)))
    assert path.stat().st_size > MAX_CHECKED_BYTES
    _damage(path)
    store = Store(path, NOTES)
    assert store.quarantined is None
    with pytest.raises(StoreError, match="damaged; the next start sets it aside"):
        _texts(store)
    store.close()
    store = Store(path, NOTES)
    assert store.quarantined is not None
    assert not list(tmp_path.glob("*.damaged"))
    store.close()


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot open .*file/a\.db: File exists; use --data"):
        Store(tmp_path / "file" / "a.db", NOTES)


def test_a_directory_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.db").mkdir()
    with pytest.raises(StoreError, match=r"a\.db is a folder where a file belongs: move it away"):
        Store(tmp_path / "a.db", NOTES)


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("a.db", r"a\.db is a link that leads back to itself: delete the link"),
        ("gone/b.db", r"a\.db is a link to .*b\.db, and .*gone does not exist: restore it, or"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, goal: str, said: str) -> None:
    (tmp_path / "a.db").symlink_to(tmp_path / goal)
    with pytest.raises(StoreError, match=said):
        Store(tmp_path / "a.db", NOTES)
    assert not (tmp_path / "gone").exists()


def test_a_folder_in_place_of_the_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.db.lock").mkdir()
    with pytest.raises(StoreError, match=r"cannot open .*a\.db\.lock: Is a directory"):
        Store(tmp_path / "a.db", NOTES)


def test_a_link_to_where_the_file_can_be_made_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to(tmp_path / "b.db")
    Store(tmp_path / "a.db", NOTES).close()
    assert (tmp_path / "b.db").stat().st_size > 0


@pytest.mark.parametrize(("name", "mode"), [("", 0o000), ("", 0o500), ("a.db", 0o000)])
def test_what_may_not_be_read_or_written_is_named(unprivileged: Path, name: str, mode: int) -> None:
    _made(unprivileged / "a.db", NOTES, "kept")
    (unprivileged / "a.db.lock").unlink(missing_ok=True)
    (unprivileged / name).chmod(mode)
    with pytest.raises(StoreError, match=r"cannot (open|read) .*a\.db: Permission denied"):
        Store(unprivileged / "a.db", NOTES)


def test_a_read_only_file_is_named(unprivileged: Path) -> None:
    path = unprivileged / "a.db"
    _made(path, NOTES, "kept")
    path.chmod(0o400)
    with pytest.raises(StoreError, match=r"a\.db: it is read-only; make it writable or use --data"):
        _made(path, NOTES, "lost")


def test_a_read_only_disk_is_named(small_disk: Path) -> None:
    store = Store(small_disk / "a.db", NOTES)
    _add(store, "kept")
    store.close()
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match=r"cannot open .*a\.db: Read-only file system"):
        Store(small_disk / "a.db", NOTES)


def test_a_full_disk_loses_nothing_that_was_kept(small_disk: Path) -> None:
    store = Store(small_disk / "a.db", NOTES)
    _add(store, "kept")
    ballast = fill(small_disk)
    with pytest.raises(StoreError, match=r"a\.db: (the disk is full|reading or writing it failed)"):
        _add(store, "x" * 500_000)
    assert _texts(store) == ["kept"]
    ballast.unlink()
    _add(store, "later")
    assert _texts(store) == ["kept", "later"]
    store.close()


def test_a_full_database_rolls_back_the_whole_transaction(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db", NOTES)
    store.rows("PRAGMA max_page_count = 20")
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        _add(store, "fits", "x" * 500_000)
    assert _texts(store) == []
    store.close()


def test_an_error_within_a_transaction_undoes_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db", NOTES)
    with pytest.raises(KeyError):
        _add_and_fail(store)
    assert _texts(store) == []
    store.close()


@pytest.mark.parametrize("remove", [Path.unlink, lambda path: path.rename(f"{path}.away")])
def test_nothing_is_written_into_a_file_nobody_would_find(tmp_path: Path, remove: object) -> None:
    path = tmp_path / "a.db"
    store = Store(path, NOTES)
    assert callable(remove)
    remove(path)
    with pytest.raises(StoreError, match="was moved or deleted while in use"):
        _add(store, "lost")
    store.close()


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db", NOTES)
    texts = [str(number) for number in range(25)]
    threads = [
        threading.Thread(target=lambda: [*map(functools.partial(_add, store), texts)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(_texts(store)) == sorted(texts * 4)
    store.close()


_WRITER = """
import sys
from pathlib import Path
from tests.datastores.storage.test_sqlite import NOTES, _add
from datastores.storage.sqlite import Store
store = Store(Path(sys.argv[1]), NOTES)
for _ in range(50):
    _add(store, sys.argv[2])
store.close()
"""


def test_processes_that_open_and_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    names = ["first", "second", "third"]
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name], stderr=subprocess.PIPE)
        for name in names
    ]
    assert [writer.communicate()[1] for writer in writers] == [b""] * 3
    store = Store(path, NOTES)
    assert sorted(_texts(store)) == sorted(names * 50)
    store.close()


def test_a_writer_that_does_not_let_go_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastores.storage.sqlite.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "a.db"
    store = Store(path, NOTES)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process keeps it locked; try again"):
        _add(store, "waits")
    other.close()
    _add(store, "goes on")
    store.close()


def _damage(path: Path) -> None:
    """Overwrite pages in the middle of the file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xa5" * 4096 * 3)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit(143), MemoryError])
def test_what_a_function_raises_within_a_statement_is_raised_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    def interrupted(_: str) -> str:
        raise raised

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # put back at the end
    monkeypatch.setitem(functions.FUNCTIONS, "index_form", interrupted)
    with closing(Store(tmp_path / "notes.db", NOTES)) as store:
        _add(store, "kept")
        expected = raised if isinstance(raised, type) else type(raised)
        lost = "INSERT INTO notes (text) VALUES ('lost'), (index_form('x'))"
        with pytest.raises(expected), store.writing() as db:
            db.conn.execute(lost)
        assert [row["text"] for row in store.rows("SELECT text FROM notes")] == ["kept"]
        with pytest.raises(StoreError, match="no such column"):
            store.rows("SELECT author FROM notes")


def test_what_others_cannot_raise_is_told_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: told.append(found.exc_value))

    class Failing:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    with closing(Store(tmp_path / "notes.db", NOTES)):
        del (failing := [Failing()])[0]
    assert not failing
    [error] = told
    assert isinstance(error, ValueError)
