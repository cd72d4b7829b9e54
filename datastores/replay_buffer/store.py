"""The replay buffer on disk: the latest answers of one target, for its draft model to learn from.

Each target has one file, since the probabilities of one model cannot teach another. Its size is
bounded; the oldest records make room. Erased owners leave no byte. The first record of every owner
is remembered beyond the records, so that `ReplayBuffer.removed_since` can tell whether an owner
that a draft model may have learned from was removed.

Several processes may use one file; each statement is short and leaves no lock behind, so that a
paused reader blocks nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.owners import belongs, is_lapsed
from datastores.replay_buffer import states
from datastores.replay_buffer.record import ReplayRecord, pack, require_valid, unpack
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.integrity import verify_checksum, with_checksum
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store

MAX_BYTES = 64 * 2**20
"""Size of all records: about 1,500 answers of 300 tokens, at 100 positions each."""
MAX_STATES = 100_000
"""States stored, those of the latest answers: 26 MB for a model of width 256, 410 MB for 4,096."""


def _records(db: Database) -> None:
    # On disk an owner is called `source`. States have a table of their own, so that reading
    # records for the draft model does not read them.
    db.executescript(
        """
        CREATE TABLE buffer (
            identity TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            vocabulary INTEGER NOT NULL
        );
        CREATE TABLE sources (
            source TEXT PRIMARY KEY,
            first INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE records (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL REFERENCES sources(source) ON DELETE CASCADE,
            size INTEGER NOT NULL,
            packed BLOB NOT NULL
        );
        CREATE INDEX records_by_source ON records(source);
        CREATE TABLE states (
            record INTEGER PRIMARY KEY REFERENCES records(id) ON DELETE CASCADE,
            count INTEGER NOT NULL,
            packed BLOB NOT NULL
        );
        CREATE TABLE removals (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            first INTEGER NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        """
    )


SCHEMA = Schema(2, _records, lasting=frozenset({"buffer", "sources", "records"}))


class ReplayBuffer:
    """The records of one target.

    Every method raises StoreError if the file cannot be read or written.

    Attributes:
        fingerprint: the target's.
        vocabulary: number of its tokens.
        identity: random name of this file.
        damaged: records that `records` left out, by id.
    """

    def __init__(
        self, store: Store, fingerprint: str, vocabulary: int, max_bytes: int = MAX_BYTES
    ) -> None:
        """Use `store` for the target of `fingerprint`.

        Raises:
            StoreError: it belongs to another target.
        """
        self.store = store
        self.fingerprint = fingerprint
        self.vocabulary = vocabulary
        self.damaged: dict[int, StoreError] = {}
        self._max_bytes = max_bytes
        self.identity = self._claim()

    @classmethod
    def open(
        cls, path: Path, fingerprint: str, vocabulary: int, max_bytes: int = MAX_BYTES
    ) -> ReplayBuffer:
        """Open or create the file in an existing folder.

        Raises:
            StoreError: also once if the file was damaged, see `_open_store`.
        """
        opened = cls(_open_store(path), fingerprint, vocabulary, max_bytes)
        erase_requested(opened.store)
        return opened

    @classmethod
    def existing(cls, path: Path) -> ReplayBuffer:
        """Open a buffer of any target.

        Raises:
            FileNotFoundError: there is none, or it has no target yet.
            StoreError: also once if the file was damaged, see `_open_store`.
        """
        if path.exists():
            store = _open_store(path)
            for row in store.rows("SELECT fingerprint, vocabulary FROM buffer"):
                return cls(store, row["fingerprint"], row["vocabulary"])
            store.close()
        raise FileNotFoundError(path)

    def close(self) -> None:
        self.store.close()

    @property
    def size(self) -> int:
        """Number of records."""
        return int(self.store.rows("SELECT count(*) AS n FROM records")[0]["n"])

    @property
    def total_bytes(self) -> int:
        """Size of all records, without their states."""
        return int(self.store.rows("SELECT total(size) AS n FROM records")[0]["n"])

    @property
    def state_bytes(self) -> int:
        """Size of all states."""
        return int(self.store.rows("SELECT total(length(packed)) AS n FROM states")[0]["n"])

    def count_after(self, record: int, *, with_states: bool = False) -> int:
        """Number of records with larger ids than `record`, or only of those with states."""
        table, column = ("states", "record") if with_states else ("records", "id")
        sql = f"SELECT count(*) AS n FROM {table} WHERE {column} > ?"
        return int(self.store.rows(sql, (record,))[0]["n"])

    @property
    def last_id(self) -> int:
        """Id of the latest record ever added; 0 before the first."""
        return _last_id(self.store, "records")

    @property
    def last_removal(self) -> int:
        """Number of removals so far; a version of a draft model stores it."""
        return _last_id(self.store, "removals")

    def removed_since(self, last_record: int, last_removal: int) -> bool:
        """Whether an owner that had records up to `last_record` was removed after `last_removal`.

        A model that ever learned from these records may then still know the owner.
        """
        sql = "SELECT 1 FROM removals WHERE id > ? AND first <= ? LIMIT 1"
        return bool(self.store.rows(sql, (last_removal, last_record)))

    def add(self, owner: str, record: ReplayRecord) -> int:
        """Store `record` under `owner`; the oldest ones make room. Returns its id.

        Raises:
            ValueError: no target can have generated it.
        """
        require_valid(record, self.vocabulary)
        packed = with_checksum(self._owner(owner), pack(record))
        with self.store.writing() as db:
            row = (owner, len(packed), packed)
            # The owner first: a record refers to it, and it keeps the id of its first record.
            sql = "INSERT OR IGNORE INTO sources (source, first) VALUES (?, ?)"
            db.conn.execute(sql, (owner, _last_id(self.store, "records") + 1))
            sql = "INSERT INTO records (source, size, packed) VALUES (?, ?, ?)"
            number = db.conn.execute(sql, row).lastrowid
            if len(record.states):
                blob = with_checksum(self._state_owner(owner), states.pack(record.states))
                sql = "INSERT INTO states (record, count, packed) VALUES (?, ?, ?)"
                db.conn.execute(sql, (number, len(record.states), blob))
            self._make_room(db)
        assert number is not None
        return number

    def records(self, after_id: int = 0, *, with_states: bool = False) -> Iterator[ReplayRecord]:
        """Every valid record with a larger id than `after_id`, oldest first.

        Damaged or poisoned ones are left out and reported in `damaged`.

        Args:
            with_states: read the states too, and leave out records without any.
        """
        columns = "id, source, CAST(records.packed AS BLOB) AS packed"
        table = "records"
        if with_states:
            columns += ", count, CAST(states.packed AS BLOB) AS states"
            table += " JOIN states ON states.record = records.id"
        sql = f"SELECT {columns} FROM {table} WHERE id > ? ORDER BY id LIMIT 1"
        # One statement per record: an open cursor would hold a lock between two items.
        while rows := self.store.rows(sql, (after_id,)):
            (row,) = rows
            after_id = row["id"]
            try:
                yield self._unpack(row)
            except ValueError as error:
                self.damaged[after_id] = StoreError(
                    f"{self.store.path}: record {after_id} is damaged and was left out: {error}"
                )

    def forget(self, owner: str) -> None:
        """Erase everything of `owner`, what it shares included.

        Raises:
            StoreError: another process keeps an older state; another call finishes the work.
        """
        with self.store.writing() as db:
            _remove(db, [one for one in _owners(db) if belongs(one, owner)])
        erase_requested(self.store)

    def _unpack(self, row: Mapping[str, Any]) -> ReplayRecord:
        owner = row["source"]
        record = unpack(row["id"], verify_checksum(self._owner(owner), row["packed"]))
        if "states" in row:
            packed = verify_checksum(self._state_owner(owner), row["states"])
            record = replace(record, states=states.unpack(row["count"], packed))
        require_valid(record, self.vocabulary)
        return record

    def _owner(self, owner: str) -> str:
        """The name that a checksum binds a record to."""
        return f"{self.fingerprint}/{owner}"

    def _state_owner(self, owner: str) -> str:
        """The name that a checksum binds the states of a record to."""
        return f"{self._owner(owner)}/states"

    def _make_room(self, db: Database) -> None:
        """Delete the oldest records beyond `max_bytes`, and states likewise, but not the latest."""
        db.conn.execute(
            "DELETE FROM records WHERE id < (SELECT max(id) FROM records) AND id IN"
            " (SELECT id FROM (SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM records)"
            "  WHERE total > ?)",
            (self._max_bytes,),
        )
        db.conn.execute(
            "DELETE FROM states WHERE record < (SELECT max(record) FROM states) AND record IN"
            " (SELECT record FROM (SELECT record, sum(count) OVER (ORDER BY record DESC) AS total"
            "  FROM states) WHERE total > ?)",
            (MAX_STATES,),
        )

    def _claim(self) -> str:
        """Mark a new file as this target's; returns its identity."""
        with self.store.writing() as db:
            table = db.table("buffer")
            if not table.count:
                row = {"fingerprint": self.fingerprint, "vocabulary": self.vocabulary}
                table.insert({"identity": token_hex(8), **row})
            (found,) = table.rows
        if (found["fingerprint"], found["vocabulary"]) != (self.fingerprint, self.vocabulary):
            self.store.close()
            raise StoreError(
                f"{self.store.path} is the replay buffer of another model; move it away"
            )
        return str(found["identity"])


def retain(path: Path, prefixes: tuple[str, ...], wanted: Collection[str]) -> None:
    """Erase the answers of owners that begin with one of `prefixes` and are not `wanted`, in a
    buffer of any target.

    A damaged buffer is deleted, since it may contain them.

    Raises:
        StoreError: the buffer was damaged or cannot be written, or another process keeps an older
            state of it; another call finishes the work.
    """
    _delete_quarantined(path)  # left by a killed process
    with closing(_open_store(path)) as store:
        with store.writing() as db:
            _remove(db, [one for one in _owners(db) if is_lapsed(one, prefixes, wanted)])
        erase_requested(store)


def _owners(db: Database) -> list[str]:
    return [row["source"] for row in db.query("SELECT source FROM sources")]


def _remove(db: Database, owners: Collection[str]) -> None:
    """Delete `owners` with their records, and record their first ids; erasure must follow."""
    for owner in owners:
        found = db.conn.execute("SELECT first FROM sources WHERE source = ?", (owner,)).fetchone()
        if found is not None:
            db.conn.execute("INSERT INTO removals (first) VALUES (?)", found)
            db.conn.execute("DELETE FROM sources WHERE source = ?", (owner,))
            request_erasure(db)


def _open_store(path: Path) -> Store:
    """Open the file.

    Raises:
        StoreError: also if it was damaged. It is then deleted, since its contents could not be
            erased with chats that are deleted later; the next call opens an empty one.
    """
    store = Store(path, SCHEMA)
    if store.quarantined is not None:
        _delete_quarantined(path)
        store.close()
        raise StoreError(
            f"{path} was damaged and is deleted: what draft models learn from is collected again"
        )
    return store


def _delete_quarantined(path: Path) -> None:
    for part in path.parent.glob(f"{path.name}.corrupt-*"):
        part.unlink()


def _last_id(store: Store, table: str) -> int:
    sql = "SELECT coalesce(max(seq), 0) AS last FROM sqlite_sequence WHERE name = ?"
    return int(store.rows(sql, (table,))[0]["last"])
