"""A cache of the corpus in one tokenizer's token ids, so that stores need not tokenise it.

Each tokenised text is one row, so tokenising can stop after any text and resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store

Ids = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The tokens of one part of a text, and its kind as a small number."""

    kind: int
    tokens: Ids


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One whole text: its key in the corpus, and its spans in order (possibly none)."""

    key: bytes
    spans: tuple[TokenSpan, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens in all spans."""
        return sum(len(span.tokens) for span in self.spans)


class TokenCache:
    """The cache of one tokenizer. Several processes and threads may use one file at once.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, path: Path) -> TokenCache:
        """Open or create the cache."""
        opened = cls(Store(path, SCHEMA))
        # What a power failure loses is tokenised again.
        opened.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return opened

    def close(self) -> None:
        self.store.close()

    def keys(self) -> list[bytes]:
        """The keys of all texts, in order."""
        return [bytes(row["key"]) for row in self.store.rows("SELECT key FROM texts ORDER BY key")]

    def span_counts(self) -> list[tuple[bytes, int]]:
        """The key of each text and the number of its spans, sorted by key."""
        rows = self.store.rows("SELECT key, passages FROM texts ORDER BY key")
        return [(bytes(row["key"]), row["passages"]) for row in rows]

    def token_counts(self) -> dict[bytes, int]:
        """The number of tokens of each text, by key."""
        rows = self.store.rows("SELECT key, tokens FROM texts")
        return {bytes(row["key"]): row["tokens"] for row in rows}

    def write(self, texts: Sequence[TokenizedText]) -> None:
        """Store `texts` in one transaction; existing ones are replaced."""
        rows = [(text.key, len(text.spans), text.tokens, _packed(text.spans)) for text in texts]
        with self.store.writing() as db:
            db.conn.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", rows)

    def read(self, keys: Iterable[bytes]) -> Iterator[TokenizedText]:
        """The texts under `keys`, one at a time; deleted ones are left out."""
        for key in keys:
            for row in self.store.rows("SELECT ids FROM texts WHERE key = ?", (key,)):
                yield TokenizedText(key, _unpacked(row["ids"]))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete texts and overwrite their bytes.

        Raises:
            StoreError: also if another process reads an older state; the next `forget`, even with
                no keys, completes the work.
        """
        with self.store.writing() as db:
            before = db.conn.total_changes
            db.conn.executemany("DELETE FROM texts WHERE key = ?", [(key,) for key in keys])
            if db.conn.total_changes > before:
                request_erasure(db)
        erase_requested(self.store)


def _texts(db: Database) -> None:
    db.executescript(
        """
        CREATE TABLE texts (
            key BLOB PRIMARY KEY,
            passages INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            ids BLOB NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY);
        """
    )


SCHEMA = Schema(1, _texts, cache=True)


def _packed(spans: Sequence[TokenSpan]) -> bytes:
    """For each span: kind, bytes per id, number of ids (4 bytes), ids; all little-endian."""
    pieces = []
    for span in spans:
        ids = np.asarray(span.tokens, dtype="<u4")
        width = _width(int(ids.max(initial=0)))
        pieces.append(bytes([span.kind, width]) + len(ids).to_bytes(4, "little"))
        pieces.append(ids.view(np.uint8).reshape(-1, 4)[:, :width].tobytes())
    return b"".join(pieces)


def _unpacked(blob: bytes) -> tuple[TokenSpan, ...]:
    spans, start = [], 0
    while start < len(blob):
        kind, width = blob[start], blob[start + 1]
        count = int.from_bytes(blob[start + 2 : start + 6], "little")
        start += 6
        ids = np.zeros((count, 4), dtype=np.uint8)
        packed = np.frombuffer(blob, dtype=np.uint8, count=count * width, offset=start)
        ids[:, :width] = packed.reshape(count, width)
        spans.append(TokenSpan(kind, ids.view("<u4").reshape(count)))
        start += count * width
    return tuple(spans)


def _width(largest: int) -> int:
    """Bytes per id: two for most small vocabularies, three for large ones."""
    return max(2, (largest.bit_length() + 7) // 8)
