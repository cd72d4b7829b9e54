"""A cache of the corpus in one tokenizer's token ids, so that stores need not tokenise it, and its
suffix index.

Each tokenised text is one row, so tokenising can stop after any text and resume. The suffix index
has the places of some of its n-grams (`datastores.winnowing`), from which `suffix_reader` reads on:
an answer that repeats an old one, or copies a file, continues as that text did. SuffixDecoding
(arXiv 2411.04975) keeps suffix trees for this and SAM-Decoding (arXiv 2411.10666) a suffix
automaton, which take many times the memory of the texts; places take some 3 bytes of disk for each
token. Texts wait for their places until `index_next`, and lose them with their row, in one
transaction: the index is exact at every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store
from datastores.winnowing import winnow

Ids = NDArray[np.uint32]

OFFSET_BITS = 24
"""Bits of a place for the offset in its text; those above are the number of the text."""
MAX_OFFSET = (1 << OFFSET_BITS) - 1
PLACE_BYTES = 22
"""Average size of a place on disk."""
INDEXED_TOKENS = 1 << 20
"""Tokens indexed in one transaction, which then rewrites most pages of the index."""
KEPT_SHARE = 7 / 8
"""Share of the places that stay when there are too many: all are read to drop some."""
SPAN_HEAD_BYTES = 6
"""Before the ids of each span."""


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
        sql = (
            "INSERT INTO texts (key, passages, tokens, ids) VALUES (?, ?, ?, ?) ON CONFLICT DO"
            " UPDATE SET passages = excluded.passages, tokens = excluded.tokens,"
            " ids = excluded.ids, places = NULL WHERE ids <> excluded.ids"
        )
        with self.store.writing() as db:
            db.conn.executemany(sql, rows)

    def read(self, keys: Iterable[bytes]) -> Iterator[TokenizedText]:
        """The texts under `keys`, one at a time; deleted ones are left out."""
        for key in keys:
            for row in self.store.rows("SELECT ids FROM texts WHERE key = ?", (key,)):
                yield TokenizedText(key, _unpacked(row["ids"]))

    def index_due(self) -> bool:
        """Whether a text waits for its places."""
        return bool(self.store.rows("SELECT 1 FROM texts WHERE places IS NULL LIMIT 1"))

    def index_next(self, budget_bytes: int) -> None:
        """Add the places of some texts that wait for them to the suffix index.

        Args:
            budget_bytes: most bytes of the index; beyond it, the oldest texts lose their places.
        """
        with self.store.writing() as db:
            _index_some(db)
            _drop_oldest(db, budget_bytes // PLACE_BYTES)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Delete texts with their places and overwrite their bytes.

        Raises:
            StoreError: also if another process reads an older state; the next `forget`, even with
                no keys, completes the work.
        """
        with self.store.writing() as db:
            before = db.conn.total_changes
            db.conn.executemany("DELETE FROM texts WHERE key = ?", [(key,) for key in keys])
            if db.conn.total_changes > before:
                _drop_places(db, "SELECT number FROM texts")
                request_erasure(db)
        erase_requested(self.store)


def _texts(db: Database) -> None:
    # `places` is the number of places in the index, NULL until they are added. VACUUM preserves an
    # INTEGER PRIMARY KEY, on which places rely.
    db.executescript(
        """
        CREATE TABLE texts (
            number INTEGER PRIMARY KEY,
            key BLOB NOT NULL UNIQUE,
            passages INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            places INTEGER DEFAULT NULL,
            ids BLOB NOT NULL
        );
        CREATE TABLE grams (
            gram INTEGER NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (gram, place)
        ) WITHOUT ROWID;
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY);
        """
    )


SCHEMA = Schema(2, _texts)


def _index_some(db: Database) -> None:
    """Add the places of some texts that wait for them, the oldest first."""
    numbers: list[int] = []
    tokens = 0
    due = "SELECT number, tokens FROM texts WHERE places IS NULL ORDER BY number"
    for number, size in db.conn.execute(due):
        tokens += size
        if numbers and tokens > INDEXED_TOKENS:
            break
        numbers.append(number)
    found: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    for number in numbers:
        ids = db.conn.execute("SELECT ids FROM texts WHERE number = ?", (number,)).fetchone()[0]
        places = _places(number, _unpacked(ids))
        db.conn.execute("UPDATE texts SET places = ? WHERE number = ?", (len(places), number))
        found.append(places)
    every = np.concatenate(found)
    ordered = every[np.lexsort((every[:, 1], every[:, 0]))].tolist()
    db.conn.executemany("INSERT OR IGNORE INTO grams VALUES (?, ?)", ordered)


def _places(number: int, spans: Sequence[TokenSpan]) -> NDArray[np.int64]:
    """Hash and place of the kept n-grams of a text, int64 [n, 2]."""
    found, first = [np.empty((0, 2), np.int64)], 0
    for span in spans:
        grams, offsets = winnow(span.tokens)
        offsets += first
        rows = np.stack([grams, number << OFFSET_BITS | offsets], axis=1)
        found.append(rows[offsets <= MAX_OFFSET])
        first += len(span.tokens)
    return np.concatenate(found)


def _drop_oldest(db: Database, most: int) -> None:
    """Drop the places of the oldest texts if there are more than `most`."""
    excess = db.conn.execute("SELECT coalesce(sum(places), 0) FROM texts").fetchone()[0]
    if excess <= most:
        return
    excess -= int(KEPT_SHARE * most)
    gone = []
    numbers = "SELECT number, places FROM texts WHERE places > 0 ORDER BY number"
    for number, places in db.conn.execute(numbers).fetchall():
        gone.append((number,))
        excess -= places
        if excess <= 0:
            break
    db.conn.executemany("UPDATE texts SET places = 0 WHERE number = ?", gone)
    _drop_places(db, "SELECT number FROM texts WHERE places > 0")


def _drop_places(db: Database, kept: str) -> None:
    """Drop all places but those of the texts whose numbers `kept` selects."""
    db.conn.execute(f"DELETE FROM grams WHERE place >> {OFFSET_BITS} NOT IN ({kept})")


class Surroundings(NamedTuple):
    """Tokens of a span up to some offset, and after it.

    Attributes:
        ended: whether the span ends with `after`.
    """

    kind: int
    before: list[int]
    after: list[int]
    ended: bool


def read_around(
    part: Callable[[int, int], bytes], size: int, offset: int, most_before: int, most_after: int
) -> Surroundings | None:
    """What is around an offset of a packed text, without reading all of it; None beyond its end.

    Args:
        part: the packed bytes from one to before another, of `size` bytes.

    Raises:
        IndexError: the text is damaged.
    """
    start = first = 0
    while start < size:
        kind, width, count = _head(part(start, start + SPAN_HEAD_BYTES))
        if not 0 < width <= 4:
            raise IndexError(f"ids of {width} bytes")
        start += SPAN_HEAD_BYTES
        if offset < first + count:
            here = offset + 1 - first
            head = max(here - most_before, 0)
            tail = min(here + most_after, count)
            packed = part(start + head * width, start + tail * width)
            ids = _ids(packed, width).tolist()
            if len(ids) != tail - head:
                raise IndexError("a text is cut off")
            return Surroundings(kind, ids[: here - head], ids[here - head :], tail == count)
        start += count * width
        first += count
    return None


def _head(packed: bytes) -> tuple[int, int, int]:
    """Kind of a span, bytes of an id, and number of ids."""
    return packed[0], packed[1], int.from_bytes(packed[2:], "little")


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
        kind, width, count = _head(blob[start : start + SPAN_HEAD_BYTES])
        start += SPAN_HEAD_BYTES
        spans.append(TokenSpan(kind, _ids(blob[start : start + count * width], width)))
        start += count * width
    return tuple(spans)


def _ids(packed: bytes, width: int) -> Ids:
    """The ids in `packed`, of `width` bytes each."""
    ids = np.zeros((len(packed) // width, 4), dtype=np.uint8)
    ids[:, :width] = np.frombuffer(packed, dtype=np.uint8).reshape(-1, width)
    return ids.view("<u4").reshape(-1)


def _width(largest: int) -> int:
    """Bytes per id: two for most small vocabularies, three for large ones."""
    return max(2, (largest.bit_length() + 7) // 8)
