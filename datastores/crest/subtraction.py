"""Subtracting texts from the base tier, in place.

Every count of an exact store is a function of its texts, and the half octaves on its pages are
functions of these counts. So a text's own strings are counted, and its n-grams are looked up: their
counts decrease. Nodes that become rarer than anything the store counted are removed, as are n-grams
without nodes, token ids without nodes, and the text's identity. The rest has the bytes it would
have if the text had never been counted, except for what only a rebuild decides: which strings are
worth keeping, the ranks of tokens, and the kind of each n-gram.

Work and bytes written are proportional to the texts. Rows keep their lengths, so SQLite writes them
in place, and no copy of the old ones remains in the file (except in the log, which the caller
empties).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.crest.build import USE_BYTES
from datastores.crest.counting import count_strings
from datastores.crest.format import (
    CHECK_SHIFT,
    CHILDREN_FOLLOW,
    MIN_AMBIGUOUS_COUNT,
    hash_columns,
    place,
    spell,
)
from datastores.crest.selection import MAX_CONTINUATION
from datastores.crest.texts import TokenText, joined

CHECK_BYTES = 2


@dataclass(slots=True)
class ExactEntry:
    """The tree of one n-gram with its exact counts; row 0 is the n-gram.

    Attributes:
        kind: the kind of most of its occurrences, when it was counted.
        check: more bits of its hash.
        ranks: rank of each row's token, as it is written.
        counts: occurrences of each row.
        children: rows [first, last) of each row's children.
    """

    kind: int
    check: int
    ranks: list[bytes]
    counts: list[int]
    children: list[tuple[int, int]]


def read_entry(data: bytes) -> ExactEntry:
    """The entry in `data`. Raises IndexError if it is damaged."""
    last = 1 + data[1]
    ranks, levels, children = [b""], [data[0] & 31], [(1, last)]
    at, rows = 2, 1
    while rows < last:
        node = data[at]
        number = node & 15
        at += 1
        if number == CHILDREN_FOLLOW:
            number = data[at]
            at += 1
        start = at
        while data[at] > 127:
            at += 1
        at += 1
        ranks.append(data[start:at])
        levels.append(node >> 4)
        children.append((last, last + number))
        last += number
        rows += 1
    check = data[at] | data[at + 1] << 8
    counts = _read_counts(data, at + CHECK_BYTES, levels, children)
    return ExactEntry(data[0] >> 5, check, ranks, counts, children)


def _read_counts(
    data: bytes, at: int, levels: Sequence[int], children: Sequence[tuple[int, int]]
) -> list[int]:
    """The counts of all rows, which are written only where half octaves are ambiguous."""
    count = round(2 ** (levels[0] / 2))
    if count >= MIN_AMBIGUOUS_COUNT:
        count, at = _read_number(data, at)
    counts = [count]
    for row, (first, last) in enumerate(children):
        above = counts[row]
        if above < MIN_AMBIGUOUS_COUNT:
            counts += [SMALL_COUNTS[above][level] for level in levels[first:last]]
            continue
        for _ in range(first, last):
            count, at = _read_number(data, at)
            counts.append(count)
    return counts


def write_entry(entry: ExactEntry) -> bytes:
    """The bytes of `entry`, as `datastores.crest.format.encode` writes them."""
    counts, children, ranks = entry.counts, entry.children, entry.ranks
    tree = bytearray((entry.kind << 5 | min(31, round(2 * log2(counts[0]))), children[0][1] - 1))
    tail = bytearray(entry.check.to_bytes(CHECK_BYTES, "little"))
    if counts[0] >= MIN_AMBIGUOUS_COUNT:
        tail += _number(counts[0])
    for above, (first, last) in zip(counts, children, strict=True):
        for child in range(first, last):
            start, stop = children[child]
            count, number = counts[child], stop - start
            level = _level(count, above) << 4
            if number < CHILDREN_FOLLOW:
                tree.append(level | number)
            else:
                tree += bytes((level | CHILDREN_FOLLOW, number))
            tree += ranks[child]
            if above >= MIN_AMBIGUOUS_COUNT:
                tail += _number(count)
    tree += tail
    return bytes(tree + bytes(len(tree) & 1))


@lru_cache(maxsize=1 << 16)
def _level(count: int, above: int) -> int:
    """`datastores.crest.format.probability_level` of one node."""
    return min(15, round(-2 * log2(count / above)))


SMALL_COUNTS = tuple(
    tuple(round(above * 2 ** (-level / 2)) for level in range(16))
    for above in range(MIN_AMBIGUOUS_COUNT)
)
"""The count of a node by that of its parent and its half octaves."""


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the offset after it."""
    byte, at = data[at], at + 1
    number, shift = byte & 127, 7
    while byte > 127:
        byte, at = data[at], at + 1
        number |= (byte & 127) << shift
        shift += 7
    return number, at


@lru_cache(maxsize=1 << 12)
def _number(number: int) -> bytes:
    pieces = bytearray()
    while number > 127:
        pieces.append(number & 127 | 128)
        number >>= 7
    return bytes((*pieces, number))


class OwnStrings:
    """The strings of the removed texts, as a tree of counts."""

    def __init__(self, texts: Sequence[TokenText], longest: int) -> None:
        with joined(texts) as text:
            self._levels = count_strings(text, longest + MAX_CONTINUATION).levels
        self._tokens = [level.tokens.tolist() for level in self._levels]
        self._counts = [level.counts.tolist() for level in self._levels]
        self._firsts = [
            np.searchsorted(deeper.prefixes, np.arange(len(level) + 1)).tolist()
            for level, deeper in zip(self._levels, self._levels[1:], strict=False)
        ]

    def hashes(self, length: int) -> NDArray[np.uint64]:
        """The hashes of all n-grams of one length, by index."""
        strings = np.arange(len(self._levels[length - 1]), dtype=np.int32)
        return hash_columns(spell(self._levels, length, strings))

    def count(self, length: int, index: int) -> int:
        """The number of occurrences of a string of `length` tokens."""
        return int(self._counts[length - 1][index])

    def child(self, length: int, index: int, token: int) -> int:
        """The index, among strings one longer, of this one followed by `token`; -1 for none."""
        if length >= len(self._levels):
            return -1
        first, last = self._firsts[length - 1][index : index + 2]
        at = bisect_left(self._tokens[length], token, first, last)
        return at if at < last and self._tokens[length][at] == token else -1


@dataclass(frozen=True, slots=True)
class BaseTier:
    """The columns of the base tier's row that subtraction needs."""

    longest: int
    pages: int
    least: int
    ids: Sequence[int]


class Subtraction:
    """Subtracts texts from the base tier in a database, within a transaction.

    Attributes:
        dropped: number of removed nodes by the rank of their token.
        entries: number of removed n-grams.
    """

    def __init__(self, db: Database, tier: BaseTier) -> None:
        self.dropped: Counter[int] = Counter()
        self.entries = 0
        self._db = db
        self._tier = tier

    def subtract(self, texts: Sequence[TokenText]) -> None:
        """Rewrite every page with an n-gram of `texts`."""
        own = OwnStrings(texts, self._tier.longest)
        for number, ngrams in _by_page(own, self._tier):
            row = self._db.conn.execute("SELECT entries FROM pages WHERE number = ?", (number,))
            for (page,) in row.fetchall():
                with self._db.conn.blobopen("pages", "entries", number) as blob:
                    blob.write(self._subtracted(page, own, ngrams).ljust(len(page), b"\0"))

    def _subtracted(self, page: bytes, own: OwnStrings, ngrams: _Ngrams) -> bytes:
        """`page` without the occurrences of `ngrams`."""
        kept = []
        for mark, data in page_entries(page):
            for length, index, check in ngrams.get(mark, ()):
                entry = read_entry(data)
                if entry.check == check:
                    data = self._without(entry, own, length, index)
                    break
            if data:
                kept.append((mark, data))
        return write_page(kept)

    def _without(self, entry: ExactEntry, own: OwnStrings, length: int, index: int) -> bytes:
        """`entry` without the occurrences of one string; empty if nothing remains."""
        counts, ids = entry.counts, self._tier.ids
        counts[0] -= own.count(length, index)
        found = [(0, length, index)]
        for row, deep, string in found:
            for child in range(*entry.children[row]):
                rank, _ = _read_number(entry.ranks[child], 0)
                below = own.child(deep, string, ids[rank])
                if below >= 0:
                    counts[child] -= own.count(deep + 1, below)
                    found.append((child, deep + 1, below))
        return self._pruned(entry)

    def _pruned(self, entry: ExactEntry) -> bytes:
        """`entry` without the rows that are rarer than what the store counts."""
        counts, children, least = entry.counts, entry.children, self._tier.least
        if min(counts) >= least:
            return write_entry(entry)
        rows = [0] if counts[0] >= least else []
        spans = []
        for row in rows:
            first = len(rows)
            rows += [child for child in range(*children[row]) if counts[child] >= least]
            spans.append((first, len(rows)))
        if len(rows) < 2:
            self.entries += 1
            self._drop(entry.ranks[1:])
            return b""
        kept = frozenset(rows)
        self._drop([rank for row, rank in enumerate(entry.ranks) if row not in kept])
        ranks, left = [entry.ranks[row] for row in rows], [counts[row] for row in rows]
        return write_entry(ExactEntry(entry.kind, entry.check, ranks, left, spans))

    def _drop(self, ranks: Sequence[bytes]) -> None:
        self.dropped.update(_read_number(rank, 0)[0] for rank in ranks)


_Ngrams = dict[int, list[tuple[int, int, int]]]
"""Mark → length, index among the strings of that length, and check of each n-gram."""


def _by_page(own: OwnStrings, tier: BaseTier) -> Iterator[tuple[int, _Ngrams]]:
    """The n-grams of `own` by their page."""
    pages: dict[int, _Ngrams] = {}
    for length in range(1, tier.longest + 1):
        for index, value in enumerate(own.hashes(length).tolist()):
            number, mark = place(value, tier.pages)
            page = pages.setdefault(number, {})
            page.setdefault(mark, []).append((length, index, value >> CHECK_SHIFT))
    yield from sorted(pages.items())


def page_entries(page: bytes) -> Iterator[tuple[int, bytes]]:
    """Mark and bytes of every entry on `page`."""
    number = page[0]
    start = 1 + 3 * number
    for index in range(number):
        size = 2 * page[1 + 2 * number + index]
        yield (
            int.from_bytes(page[1 + 2 * index : 3 + 2 * index], "little"),
            page[start : start + size],
        )
        start += size


def write_page(entries: Sequence[tuple[int, bytes]]) -> bytes:
    """The page of `entries`, which are sorted by mark."""
    return b"".join(
        (
            bytes([len(entries)]),
            *(mark.to_bytes(2, "little") for mark, _ in entries),
            bytes(len(data) >> 1 for _, data in entries),
            *(data for _, data in entries),
        )
    )


def overwrite(db: Database, column: str, tier: int, pieces: Iterable[tuple[int, bytes]]) -> None:
    """Overwrite parts of a column of the tier's row in place, given by their offsets."""
    with db.conn.blobopen("tiers", column, tier) as blob:
        for offset, piece in pieces:
            blob.seek(offset)
            blob.write(piece)


def drop_uses(db: Database, tier: int, dropped: Counter[int], width: int) -> None:
    """Subtract removed nodes from the uses by rank; ids without nodes are erased.

    Args:
        width: bytes of an id, after the first byte of the ids.
    """
    gone = []
    with db.conn.blobopen("tiers", "uses", tier) as uses:
        for rank, number in dropped.items():
            if number:
                uses.seek(USE_BYTES * rank)
                left = max(0, int.from_bytes(uses.read(USE_BYTES), "little") - number)
                uses.seek(USE_BYTES * rank)
                uses.write(left.to_bytes(USE_BYTES, "little"))
                if not left:
                    gone.append((1 + width * rank, bytes(width)))
    overwrite(db, "ids", tier, gone)
