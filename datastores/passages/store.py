"""Passages on disk: the chunks of the library's texts, their word index and vectors.

This is a cache of the library, kept in step by the keys of texts. Removing a text erases every byte
of it, in vectors, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from datastores.passages.chunks import Chunk, Passage
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store

INDEX = "chunks_index"
"""The word index (FTS5)."""
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
"""FTS5 tokenizer of the word index, for texts in search form; part of the schema."""


def _passages(db: Database) -> None:
    # `vectors` are by chunk digest and of the model in `embedder`, for which `mean` and `deviation`
    # describe inner products of unrelated texts, `token_mean` and `token_deviation` those of their
    # tokens (`embeddings`). `tokens` has its own table: rows of vectors alone load quickly.
    db.executescript(
        f"""
        CREATE TABLE texts (key BLOB PRIMARY KEY, name TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
        CREATE TABLE chunks (
            id INTEGER PRIMARY KEY,
            text BLOB NOT NULL REFERENCES texts(key) ON DELETE CASCADE,
            part INTEGER NOT NULL,
            first_line INTEGER NOT NULL,
            last_line INTEGER NOT NULL,
            heading TEXT NOT NULL,
            content TEXT NOT NULL,
            digest BLOB NOT NULL
        );
        CREATE INDEX chunks_by_text ON chunks(text);
        CREATE INDEX chunks_by_digest ON chunks(digest);
        CREATE VIRTUAL TABLE {INDEX} USING fts5(
            heading, content, content='', tokenize="{TOKENIZER}"
        );
        CREATE TRIGGER chunks_added AFTER INSERT ON chunks BEGIN
            INSERT INTO {INDEX} (rowid, heading, content)
            VALUES (new.id, index_form(new.heading), index_form(new.content));
        END;
        CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
            INSERT INTO {INDEX} ({INDEX}, rowid, heading, content)
            VALUES ('delete', old.id, index_form(old.heading), index_form(old.content));
        END;
        CREATE TABLE embedder (
            fingerprint TEXT PRIMARY KEY,
            path TEXT NOT NULL,
            width INTEGER NOT NULL,
            mean REAL NOT NULL DEFAULT 0,
            deviation REAL NOT NULL DEFAULT 0,
            token_mean REAL NOT NULL DEFAULT 0,
            token_deviation REAL NOT NULL DEFAULT 0
        ) WITHOUT ROWID;
        CREATE TABLE vectors (digest BLOB PRIMARY KEY, vector BLOB NOT NULL);
        CREATE TABLE tokens (digest BLOB PRIMARY KEY, signs BLOB NOT NULL);
        CREATE TRIGGER tokens_removed AFTER DELETE ON vectors BEGIN
            DELETE FROM tokens WHERE digest = old.digest;
        END;
        CREATE TRIGGER vectors_removed AFTER DELETE ON chunks
        WHEN NOT EXISTS (SELECT 1 FROM chunks WHERE digest = old.digest) BEGIN
            DELETE FROM vectors WHERE digest = old.digest;
        END;
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY);
        """
    )


SCHEMA = Schema(10, _passages, lasting=frozenset({"texts", "chunks"}), cache=True)


class PassageStore:
    """The passages of one library, for any number of processes and threads.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, path: Path) -> PassageStore:
        """Open or create the store."""
        opened = cls(Store(path, SCHEMA))
        # What a power failure loses is made again from the library.
        opened.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return opened

    def close(self) -> None:
        self.store.close()

    def keys(self) -> set[bytes]:
        """The keys of all texts."""
        return set(self.names())

    def names(self) -> dict[bytes, str]:
        """The key and the name of each text."""
        rows = self.store.rows("SELECT key, name FROM texts")
        return {bytes(row["key"]): str(row["name"]) for row in rows}

    @property
    def text_count(self) -> int:
        """Number of texts."""
        return int(self.store.rows("SELECT count(*) AS number FROM texts")[0]["number"])

    def __len__(self) -> int:
        """Number of passages."""
        return int(self.store.rows("SELECT count(*) AS number FROM chunks")[0]["number"])

    def add(self, key: bytes, chunks: Iterable[tuple[int, Chunk]], name: str = "") -> None:
        """Store the chunks of the text `key`, each with the number of its part, all or none.

        A stored text stays as it is: the key is the digest of its content.

        Args:
            name: of its document, as it stands in the headings of the chunks.
        """
        with self.store.writing() as db:
            added = db.conn.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (key, name))
            if not added.rowcount:
                return
            db.conn.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        _identity(key, number),
                        key,
                        part,
                        chunk.first_line,
                        chunk.last_line,
                        chunk.heading,
                        chunk.content,
                        chunk.digest,
                    )
                    for number, (part, chunk) in enumerate(chunks)
                ),
            )

    def remove(self, keys: Iterable[bytes]) -> None:
        """Delete texts with their passages, and erase every byte of them.

        Raises:
            StoreError: also if another process keeps reading an older state; the next call, even
                without keys, erases them.
        """
        with self.store.writing() as db:
            before = db.conn.total_changes
            db.conn.executemany("DELETE FROM texts WHERE key = ?", [(key,) for key in keys])
            if db.conn.total_changes > before:
                request_erasure(db)
        erase_requested(self.store, [INDEX])

    @property
    def empty(self) -> bool:
        """Whether there are no passages."""
        return not self.store.rows("SELECT 1 FROM chunks LIMIT 1")

    def of_texts(self, keys: Iterable[bytes]) -> list[Passage]:
        """The passages of the texts `keys`, in the order of `keys` and of their lines."""
        sql = "SELECT * FROM chunks WHERE text = ? ORDER BY part, first_line, id"
        return [passage_of(row) for key in keys for row in self.store.rows(sql, (key,))]

    def ids_of(self, keys: Iterable[bytes]) -> list[int]:
        """The ids of the passages of the texts `keys`, ascending."""
        sql = "SELECT id FROM chunks WHERE text = ?"
        return sorted(row["id"] for key in keys for row in self.store.rows(sql, (key,)))

    def count(self, keys: Iterable[bytes]) -> int:
        """Number of passages of the texts `keys`."""
        sql = "SELECT count(*) AS number FROM chunks WHERE text = ?"
        return sum(int(self.store.rows(sql, (key,))[0]["number"]) for key in keys)

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """The passages with these ids, in this order, without those that no longer exist."""
        # One parameter for all ids: SQLite allows some tens of thousands of parameters at most.
        sql = "SELECT * FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
        rows = self.store.rows(sql, (json.dumps(list(ids)),))
        found = {row["id"]: passage_of(row) for row in rows}
        return [found[number] for number in ids if number in found]


def _identity(key: bytes, number: int) -> int:
    """The id of chunk `number` of a text, derived from content so that ties never depend on the
    order of imports."""
    digest = hashlib.sha256(number.to_bytes(4, "little") + key).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def passage_of(row: Mapping[str, Any]) -> Passage:
    """The passage of a row of `chunks`."""
    chunk = Chunk(row["heading"], row["first_line"], row["last_line"], row["content"])
    return Passage(row["id"], bytes(row["text"]), row["part"], chunk)
