"""The dense index on disk: token streams and the keys of their positions.

Each model has one file, since its hidden states mean nothing to another. A *text* is a sequence of
token ids as they were in the model's context; the key of position p stands for the state that
produced token p, so position 0 has none. All keys were made with the one projection in the file.

There are no index files: a faiss index of ten million keys is filled from here in seconds, so
nothing can be stale or damaged, and the disk holds every key once. Writing the same twice changes
nothing; data of a deleted text or projection are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.dense.projection import Codes, Projection, unpack_projection
from datastores.dense.schema import SCHEMA
from datastores.errors import StoreError
from datastores.owners import belongs, each, is_lapsed
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.integrity import (
    damage_error,
    discard_quarantined,
    translate_errors,
    verify_checksum,
    with_checksum,
)
from datastores.storage.sqlite import Store

KEY_BLOCK = 15
"""Positions in a row of keys: four such rows fill a page of 4 KiB to 94 %."""
TOKEN_BLOCK = 256
"""Token ids in a row of tokens."""
READ_ROWS = 4096
"""Rows fetched at a time while loading: four megabytes of keys."""


class TextTokens(NamedTuple):
    """Tokens of one text from position `start` on."""

    text: int
    start: int
    tokens: Sequence[int]


class TextKeys(NamedTuple):
    """Keys of one text: codes uint8 [n, dimensions] of ascending positions [n]."""

    text: int
    positions: NDArray[np.int64]
    codes: Codes


class KeyBatch(NamedTuple):
    """Keys of many texts: the text, position and code of each."""

    texts: NDArray[np.int64]
    positions: NDArray[np.int64]
    codes: Codes


class DenseStore:
    """The token streams and keys of one model; one thread uses it at a time.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, store: Store, fingerprint: str, width: int) -> None:
        """Use `store` for the model of `fingerprint`, whose states are `width` long.

        Raises:
            StoreError: it belongs to another model.
        """
        self.store = store
        self.fingerprint = fingerprint
        self.width = width
        self._projection_id = 0
        self._claim()

    @classmethod
    def open(cls, path: Path, fingerprint: str, width: int) -> DenseStore:
        """Open or create. `store.quarantined` is the path of a damaged predecessor.

        A projection that is damaged, another model's, or for states of another width is dropped
        with its keys, which mean nothing without it. The tokens stay, and are encoded again.
        """
        opened = cls(Store(path, SCHEMA), fingerprint, width)
        try:
            opened._read_projection()
        except ValueError:
            with opened.store.writing() as db:
                db.conn.execute("DELETE FROM projections")
                db.conn.execute("DELETE FROM keys")
                db.conn.execute("UPDATE documents SET keys = 0")
        erase_requested(opened.store)
        return opened

    def close(self) -> None:
        self.store.close()

    def projection(self) -> Projection | None:
        """The projection that all keys are made with; None before it is fitted."""
        try:
            return self._read_projection()
        except ValueError as error:
            raise StoreError(
                f"{self.store.path}: the projection is damaged; the next start fits it again"
            ) from error

    def keep_projection(self, projection: Projection, states: int) -> None:
        """Store the projection, which was fitted to `states` states, unless there is one."""
        packed = with_checksum(self.fingerprint, projection.pack())
        with self.store.writing() as db:
            if not db.table("projections").count:
                db.table("projections").insert({"packed": packed, "states": states})

    def create_text(self, owner: str, first: int = 1) -> int:
        """Create an empty text and return its id.

        Args:
            owner: the name that `forget` takes.
            first: the first position that needs a key; those before are only context, which
                another text already has.
        """
        return self.add_texts(owner, [()], first)[0]

    def add_texts(self, owner: str, texts: Sequence[Sequence[int]], first: int = 1) -> list[int]:
        """Store `texts` of one owner in one transaction; returns their ids. See `create_text`."""
        sql = "INSERT INTO documents (source, first, length) VALUES (?, ?, 0)"
        with self.store.writing() as db:
            ids = [int(db.conn.execute(sql, (owner, max(1, first))).lastrowid or 0) for _ in texts]
            for text, tokens in zip(ids, texts, strict=True):
                _write_tokens(db, TextTokens(text, 0, tokens))
        return ids

    def write(self, tokens: Iterable[TextTokens], keys: Sequence[TextKeys] = ()) -> None:
        """Write tokens, and keys made with the projection, in one transaction."""
        with self.store.writing() as db:
            for new in tokens:
                _write_tokens(db, new)
            # Another process may have found the projection damaged and dropped it.
            if keys and _exists(db, "projections", self._projection_id):
                for part in keys:
                    _write_keys(db, part)

    def forget(self, owner: str) -> list[int]:
        """Erase the texts of `owner`, those that it shares included; returns their ids."""
        with self.store.writing() as db:
            rows = db.query("SELECT id, source FROM documents")
            gone = [int(row["id"]) for row in rows if belongs(row["source"], owner)]
            db.conn.executemany("DELETE FROM documents WHERE id = ?", [(text,) for text in gone])
            request_erasure(db)
        erase_requested(self.store)
        return gone

    def tokens(self, text: int) -> tuple[int, ...]:
        """The token ids of a text; empty if it was deleted."""
        sql = "SELECT CAST(tokens AS BLOB) AS part FROM spans WHERE document = ? ORDER BY block"
        parts = [row["part"] for row in self.store.rows(sql, (text,))]
        return tuple(self._joined(parts).tolist())

    def texts(self) -> set[int]:
        """The ids of all texts."""
        return {row["id"] for row in self.store.rows("SELECT id FROM documents")}

    def texts_of(self, owners: Collection[str]) -> set[int]:
        """The ids of the texts that `owners` have alone or share among themselves."""
        wanted = frozenset(owners)
        return {text for text, owner in self.owner_of().items() if wanted.issuperset(each(owner))}

    def owner_of(self) -> dict[int, str]:
        """The owner of each text, by its id."""
        rows = self.store.rows("SELECT id, source FROM documents")
        return {row["id"]: row["source"] for row in rows}

    def deletions(self) -> int:
        """A number that grows whenever any process deletes texts."""
        rows = self.store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'erasures'")
        return int(rows[0]["seq"]) if rows else 0

    def owners(self, prefix: str) -> set[str]:
        """The owners of texts that begin with `prefix`; see `datastores.owners`."""
        rows = self.store.rows("SELECT DISTINCT source FROM documents")
        return {row["source"] for row in rows if row["source"].startswith(prefix)}

    def latest_tokens(self, owner: str) -> tuple[int, ...]:
        """The token ids of the last text of `owner`; empty if there is none."""
        sql = "SELECT max(id) AS id FROM documents WHERE source = ?"
        return self.tokens(self.store.rows(sql, (owner,))[0]["id"] or 0)

    def missing_keys(self, text: int) -> NDArray[np.int64]:
        """Positions of a text that need a key and have none, ascending."""
        rows = self.store.rows("SELECT block, present FROM keys WHERE document = ?", (text,))
        columns = [np.array([row[name] for row in rows], np.int64) for name in ("block", "present")]
        _, found = _expand(*columns)
        sql = "SELECT first, length FROM documents WHERE id = ?"
        needed = [np.arange(r["first"], r["length"]) for r in self.store.rows(sql, (text,))]
        return np.setdiff1d(np.concatenate([found[:0], *needed]), found)

    def incomplete(self) -> list[int]:
        """Texts with positions that need a key and have none, oldest first."""
        rows = self.store.rows("SELECT id FROM documents WHERE keys < length - first ORDER BY id")
        return [row["id"] for row in rows]

    def counts(self) -> tuple[int, int]:
        """The numbers of positions that need a key, and of those that have one."""
        sql = "SELECT sum(max(length - first, 0)) AS positions, sum(keys) AS keys FROM documents"
        (row,) = self.store.rows(sql)
        return int(row["positions"] or 0), int(row["keys"] or 0)

    def token_streams(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Every text with its token ids, by ascending id."""
        sql = "SELECT document, CAST(tokens AS BLOB) FROM spans ORDER BY document, block"
        text, parts = 0, list[bytes]()
        for owner, tokens in self._each(sql):
            if owner != text and parts:
                yield text, self._joined(parts)
                parts = []
            text = owner
            parts.append(tokens)
        if parts:
            yield text, self._joined(parts)

    def keys(self, dimensions: int) -> Iterator[KeyBatch]:
        """Every key, in no particular order."""
        rows = self._each("SELECT document, block, present, CAST(codes AS BLOB) FROM keys")
        while batch := [row for _, row in zip(range(READ_ROWS), rows, strict=False)]:
            owners, blocks, presents = np.array([row[:3] for row in batch], np.int64).T
            indexes, positions = _expand(blocks, presents)
            joined = b"".join(row[3] for row in batch)
            if len(joined) != len(positions) * dimensions:
                raise damage_error(self.store.path, "keys without positions")
            codes = np.frombuffer(joined, np.uint8).reshape(-1, dimensions)
            yield KeyBatch(owners[indexes], positions, codes)

    def _read_projection(self) -> Projection | None:
        """Raises ValueError if it is damaged, another model's, or of another width."""
        for row in self.store.rows("SELECT id, packed FROM projections"):
            projection = unpack_projection(verify_checksum(self.fingerprint, row["packed"]))
            if projection.width != self.width:
                raise ValueError(f"a projection of states {projection.width} numbers wide")
            self._projection_id = row["id"]
            return projection
        return None

    def _claim(self) -> None:
        with self.store.writing() as db:
            owner = {"fingerprint": self.fingerprint, "width": self.width}
            if not db.table("model").count:
                db.table("model").insert(owner)
            if next(db.table("model").rows) != owner:
                raise StoreError(
                    f"{self.store.path} is the dense index of another model; move it away"
                )

    def _joined(self, parts: Sequence[bytes]) -> NDArray[np.uint32]:
        whole = b"".join(parts)
        if len(whole) % 4:
            raise damage_error(self.store.path, "part of a token")
        return np.frombuffer(whole, "<u4")

    def _each(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, without holding them all."""
        with translate_errors(self.store.path):
            yield from self.store.db.conn.execute(sql)


def retain(path: Path, prefixes: tuple[str, ...], wanted: Collection[str]) -> None:
    """Erase the texts of owners that begin with one of `prefixes` and are not `wanted`.

    For an index that this process has not opened, so that no model, faiss or thread is needed. A
    damaged one that was quarantined is deleted, since it may contain them and can be made again.

    Raises:
        StoreError: the index cannot be written, or another process keeps an older state of it;
            another call finishes the work.
    """
    with closing(Store(path, SCHEMA)) as store:
        with store.writing() as db:
            owners = {row["source"] for row in db.query("SELECT DISTINCT source FROM documents")}
            gone = [one for one in owners if is_lapsed(one, prefixes, wanted)]
            if gone:
                db.conn.executemany(
                    "DELETE FROM documents WHERE source = ?", [(owner,) for owner in gone]
                )
                request_erasure(db)
        erase_requested(store)
    discard_quarantined(path)


def _exists(db: Database, table: str, row: int) -> bool:
    return bool(db.table(table).count_where("id = ?", [row]))


def _write_tokens(db: Database, new: TextTokens) -> None:
    """Append tokens to those a text has, block by block."""
    if not _exists(db, "documents", new.text):
        return
    end = new.start + len(new.tokens)
    for block in range(new.start // TOKEN_BLOCK, -(-end // TOKEN_BLOCK)):
        start, stop = max(new.start, block * TOKEN_BLOCK), min(end, (block + 1) * TOKEN_BLOCK)
        part = np.array(new.tokens[start - new.start : stop - new.start], "<u4").tobytes()
        _write_span(db, new.text, block, (start - block * TOKEN_BLOCK) * 4, part)
    sql = "UPDATE documents SET length = max(length, ?) WHERE id = ?"
    db.conn.execute(sql, (end, new.text))


def _write_span(db: Database, text: int, block: int, offset: int, part: bytes) -> None:
    stored = db.conn.execute(
        "SELECT CAST(tokens AS BLOB) FROM spans WHERE document = ? AND block = ?",
        (text, block),
    ).fetchone()
    whole = (stored[0] if stored else b"")[:offset] + part
    db.conn.execute(
        "INSERT INTO spans (document, block, tokens) VALUES (?, ?, ?)"
        " ON CONFLICT (document, block) DO UPDATE SET tokens = excluded.tokens",
        (text, block, whole),
    )


def _write_keys(db: Database, new: TextKeys) -> None:
    """Add keys to their blocks."""
    if not _exists(db, "documents", new.text):
        return
    blocks, added = new.positions // KEY_BLOCK, 0
    for block in np.unique(blocks).tolist():
        rows = blocks == block
        bits = new.positions[rows] % KEY_BLOCK
        added += _write_block(db, new.text, block, bits, new.codes[rows])
    sql = "UPDATE documents SET keys = keys + ? WHERE id = ?"
    db.conn.execute(sql, (added, new.text))


def _write_block(db: Database, text: int, block: int, bits: NDArray[np.int64], codes: Codes) -> int:
    """Add keys to their stored block; returns the number of new keys.

    Bit i of `present` is set if position i of the block has a key; `codes` has them in order.
    """
    present, whole = 0, np.zeros((KEY_BLOCK, codes.shape[1]), np.uint8)
    sql = "SELECT present, CAST(codes AS BLOB) FROM keys WHERE document = ? AND block = ?"
    stored = db.conn.execute(sql, (text, block)).fetchone()
    # A damaged stored block is replaced.
    if stored and len(stored[1]) == stored[0].bit_count() * codes.shape[1]:
        present = stored[0]
        whole[_set_bits(present)] = np.frombuffer(stored[1], np.uint8).reshape(-1, codes.shape[1])
    whole[bits] = codes
    for bit in bits.tolist():
        present |= 1 << bit
    db.conn.execute(
        "INSERT INTO keys (document, block, present, codes) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (document, block)"
        " DO UPDATE SET present = excluded.present, codes = excluded.codes",
        (text, block, present, whole[_set_bits(present)].tobytes()),
    )
    return present.bit_count() - (stored[0].bit_count() if stored else 0)


def _set_bits(present: int) -> NDArray[np.intp]:
    return np.flatnonzero([present >> bit & 1 for bit in range(KEY_BLOCK)])


def _expand(
    blocks: NDArray[np.int64], presents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every key in many rows: the index of its row, and its position."""
    rows, bits = np.nonzero(presents[:, None] >> np.arange(KEY_BLOCK) & 1)
    return rows.astype(np.int64), blocks[rows] * KEY_BLOCK + bits
