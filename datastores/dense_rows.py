"""Tokens and keys of documents as rows, written within a transaction of the caller's.

Owns the SQL that writes them. Writing the same twice changes nothing; what belongs to a document or
a generation that is gone by now is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.dense_blocks import TOKENS, KeyBlock, key_blocks
from datastores.dense_codec import Codes
from datastores.tokens import pack


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
