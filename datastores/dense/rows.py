"""Tokens and keys of documents as rows, written within a transaction of the caller's.

Owns the SQL that writes them. Writing the same twice changes nothing; what belongs to a document or
a generation that is gone by now is left out.

The dense index's schema, as numbered steps. A step that was released is never edited again.

Keys and tokens of a document in blocks of fixed size, as they lie in SQLite rows.

A row belongs to one block of a document, so what is written twice falls on the same row and nothing
is kept twice. Owns the arithmetic. Refuses to know SQL and the order of writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.dense.projection import Codes
from datastores.tokens import pack


def _documents_and_keys(db: Database) -> None:
    _documents(db)
    _keys(db)


def _documents(db: Database) -> None:
    """The texts, as tokens, and which model reads them."""
    # Blocks are sized so that a leaf page of 4 KiB holds them whole and without much slack: four
    # blocks of 15 keys of 64 bytes. Rows are found by their row id, which only grows: pages fill
    # up in order and stay full.
    db.executescript(
        """
        CREATE TABLE model (
            fingerprint TEXT NOT NULL,
            width INTEGER NOT NULL
        );
        CREATE TABLE documents (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL,
            first INTEGER NOT NULL,
            length INTEGER NOT NULL
        );
        CREATE INDEX documents_by_source ON documents(source);
        CREATE TABLE spans (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            tokens BLOB NOT NULL,
            UNIQUE (document, block)
        );
        """
    )


def _keys(db: Database) -> None:
    """What the model made of them: projections, their keys, and what the next one is made from."""
    db.executescript(
        """
        CREATE TABLE generations (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            state TEXT NOT NULL CHECK (state IN ('serving', 'building')) UNIQUE,
            projection BLOB NOT NULL,
            states INTEGER NOT NULL,
            explained REAL NOT NULL
        );
        CREATE TABLE keys (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            generation INTEGER NOT NULL REFERENCES generations(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            present INTEGER NOT NULL,
            codes BLOB NOT NULL,
            UNIQUE (document, generation, block)
        );
        CREATE TABLE coverage (
            generation INTEGER NOT NULL REFERENCES generations(id) ON DELETE CASCADE,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            keys INTEGER NOT NULL,
            PRIMARY KEY (generation, document)
        ) WITHOUT ROWID;
        CREATE INDEX coverage_by_document ON coverage(document);
        CREATE TABLE moments (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            packed BLOB NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        """
    )


DENSE = (_documents_and_keys,)
"""Version n of a dense index is what the first n of these make."""


KEYS = 15
"""Positions in a block of keys: four such rows fill a page of 4 KiB to 94 %."""
TOKENS = 256
"""Token ids in a block of tokens."""


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Keys of one block: bit i of `present` says whether position i has one, in `codes` in order.

    Attributes:
        codes: uint8 [keys present, dimensions].
    """

    block: int
    present: int
    codes: Codes

    def joined(self, other: KeyBlock) -> KeyBlock:
        """Both, `other` where both have a key of the same position."""
        full = np.zeros((KEYS, other.codes.shape[1]), np.uint8)
        for part in (self, other):
            full[offsets(part.present)] = part.codes
        present = self.present | other.present
        return KeyBlock(self.block, present, full[offsets(present)])


def offsets(present: int) -> NDArray[np.intp]:
    """The bits set, ascending."""
    return np.flatnonzero([present >> bit & 1 for bit in range(KEYS)])


def key_blocks(positions: NDArray[np.int64], codes: Codes) -> Iterator[KeyBlock]:
    """Cut keys of ascending positions in a document into blocks."""
    blocks = positions // KEYS
    for block in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == block)
        present = sum(1 << int(bit) for bit in positions[rows] % KEYS)
        yield KeyBlock(block, present, codes[rows])


def expand(
    starts: NDArray[np.int64], presents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of many rows at once, for every key: the index of its row, and its position.

    Args:
        starts: int64 [rows], where each row's block begins.
        presents: int64 [rows], their bits.
    """
    bits = presents[:, None] >> np.arange(KEYS) & 1
    rows, places = np.nonzero(bits)
    return rows.astype(np.int64), starts[rows] + places


class Written(NamedTuple):
    """What is new in one document: its tokens from position `start` on."""

    document: int
    start: int
    tokens: Sequence[int]


class Encoded(NamedTuple):
    """Keys of one document and generation: codes uint8 [n, dimensions] of ascending positions."""

    document: int
    generation: int
    positions: NDArray[np.int64]
    codes: Codes


def write_tokens(db: Database, written: Written) -> None:
    """Put tokens behind those a document has, block by block."""
    if not db.table("documents").count_where("id = ?", [written.document]):
        return
    end = written.start + len(written.tokens)
    for block in range(written.start // TOKENS, -(-end // TOKENS)):
        start, stop = max(written.start, block * TOKENS), min(end, (block + 1) * TOKENS)
        part = pack(written.tokens[start - written.start : stop - written.start])
        _put_span(db, written.document, block, (start - block * TOKENS) * 4, part)
    db.conn.execute(
        "UPDATE documents SET length = max(length, ?) WHERE id = ?", (end, written.document)
    )


def write_keys(db: Database, encoded: Encoded) -> None:
    """Join keys to those their blocks hold."""
    if not db.table("documents").count_where("id = ?", [encoded.document]):
        return
    if not db.table("generations").count_where("id = ?", [encoded.generation]):
        return
    blocks = key_blocks(encoded.positions, encoded.codes)
    fresh = sum(_put_keys(db, encoded.document, encoded.generation, block) for block in blocks)
    db.conn.execute(
        "INSERT INTO coverage (generation, document, keys) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET keys = keys + excluded.keys",
        (encoded.generation, encoded.document, fresh),
    )


def _put_span(db: Database, document: int, block: int, offset: int, part: bytes) -> None:
    held = db.conn.execute(
        "SELECT CAST(tokens AS BLOB) FROM spans WHERE document = ? AND block = ?",
        (document, block),
    ).fetchone()
    whole = (held[0] if held else b"")[:offset] + part
    db.conn.execute(
        "INSERT INTO spans (document, block, tokens) VALUES (?, ?, ?)"
        " ON CONFLICT (document, block) DO UPDATE SET tokens = excluded.tokens",
        (document, block, whole),
    )


def _put_keys(db: Database, document: int, generation: int, block: KeyBlock) -> int:
    """Join a block to what is stored of it; how many keys it has now more than before."""
    held = db.conn.execute(
        "SELECT present, CAST(codes AS BLOB) FROM keys"
        " WHERE document = ? AND generation = ? AND block = ?",
        (document, generation, block.block),
    ).fetchone()
    dimensions = block.codes.shape[1]
    # What does not fit together is damaged, and gives way.
    if held and len(held[1]) == held[0].bit_count() * dimensions:
        codes = np.frombuffer(held[1], np.uint8).reshape(-1, dimensions)
        block = KeyBlock(block.block, held[0], codes).joined(block)
    db.conn.execute(
        "INSERT INTO keys (document, generation, block, present, codes) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (document, generation, block)"
        " DO UPDATE SET present = excluded.present, codes = excluded.codes",
        (document, generation, block.block, block.present, block.codes.tobytes()),
    )
    return block.present.bit_count() - (held[0].bit_count() if held else 0)
