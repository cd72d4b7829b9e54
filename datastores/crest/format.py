"""The bytes of CREST: how trees become entries and entries become pages.

Equal trees give equal bytes, whatever the order of the texts.

An entry is the tree of continuations of one n-gram. Its nodes are in level order, so that parents
come before their children and neither a mask nor a list of parents is needed:

    entry   head node…
    head    1 byte: kind of text (3 bits), count of the n-gram (5 bits, in half octaves)
            1 byte: children of the root
    node    1 byte: P(node | its parent) in half octaves (4 bits), number of children (4 bits; 15:
            the number follows in a byte of its own)
            1–5 bytes: token, as its rank among the store's tokens by frequency, 7 bits to a byte
    exact   only in stores that texts are subtracted from (`datastores.crest.subtraction`):
            2 bytes: more of the n-gram's hash; then exact counts, 7 bits to a byte: the n-gram's
            if it is `MIN_AMBIGUOUS_COUNT` or more, and each node's whose parent's is
    (and a zero byte if needed to make the length even)

Entries share pages of some hundred bytes, so that the key of an entry costs two bytes instead of
the sixteen of a separate row. The page of an n-gram follows from its hash; within the page, two
more bytes of the hash identify the entry:

    page    1 byte: number of entries; then 2 bytes each, the marks, ascending; 1 byte each, half
            the lengths; then the entries

A lookup that meets a wrong entry by chance (one in some thousands) costs a bad draft, not a bad
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest.columns import SpilledColumn
from datastores.crest.counting import Level
from datastores.crest.selection import Nodes, occurrences

MASK = (1 << 64) - 1
MULTIPLIER = 0xD6E8FEB86659FD93
SEED = 0x9E3779B97F4A7C15

MARK_BITS = 16
MAX_PAGE_ENTRIES = 255
"""Most entries of one page."""
MAX_ENTRY_BYTES = 510
"""Largest entry: half of its length is stored in one byte."""
CHECK_SHIFT = 48
"""The bits of an n-gram's hash from here on are its check."""
MIN_AMBIGUOUS_COUNT = 5
"""Half octaves below a count smaller than this distinguish all counts."""
CHILDREN_FOLLOW = 15
"""In a node's byte: the number of children is in the next byte."""

Bytes = NDArray[np.uint8]
Wide = NDArray[np.uint64]
Tokens = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CrestEntry:
    """The tree of one n-gram, in level order; row 0 is the n-gram itself.

    Attributes:
        count: occurrences of the n-gram, within a fifth.
        kind: the kind of text of most of its occurrences.
        tokens: token id of each row; the root's is 0, without meaning.
        probabilities: P(row | its parent occurred), over all occurrences; 1 for the root.
        children: rows [first, last) of each row's children.
    """

    count: float
    kind: int
    tokens: list[int]
    probabilities: list[float]
    children: list[tuple[int, int]]

    def followers(self, row: int) -> tuple[int, int]:
        """Rows [first, last) of a row's children."""
        return self.children[row]


def hashes(context: Sequence[int], longest: int) -> list[int]:
    """The hashes of the last 1, 2, … `longest` tokens of `context`, or of as many as it has."""
    value, result = SEED, []
    for token in context[: -longest - 1 : -1]:
        value = ((value ^ token) * MULTIPLIER) & MASK
        value ^= value >> 29
        result.append(value)
    return result


def hash_columns(columns: Sequence[NDArray[np.uint32]]) -> Wide:
    """The hashes of many n-grams of one length; column i holds their i-th tokens."""
    value = np.full(len(columns[0]), SEED, dtype=np.uint64)
    for column in reversed(columns):
        value = (value ^ column.astype(np.uint64)) * np.uint64(MULTIPLIER)
        value ^= value >> np.uint64(29)
    return value


def place(value: int, pages: int) -> tuple[int, int]:
    """Page and mark of the n-gram whose hash is `value`, in a store of `pages` pages."""
    return (value >> MARK_BITS) % pages, value & (1 << MARK_BITS) - 1


def count_level(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Counts in half octaves, 0 to 31: 1, 1.4, 2, 2.8, 4…"""
    levels: NDArray[np.int64] = np.rint(2 * np.log2(counts)).astype(np.int64)
    return levels.clip(0, 31)


def probability_level(probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Probabilities in half octaves, 0 to 15: 1, 0.7, 0.5, 0.35…"""
    levels: NDArray[np.int64] = np.rint(-2 * np.log2(probabilities)).astype(np.int64)
    return levels.clip(0, 15)


COUNTS = tuple(2.0 ** (level / 2) for level in range(32))
PROBABILITIES = tuple(2.0 ** (-level / 2) for level in range(16))


def decode(data: bytes, ids: Sequence[int]) -> CrestEntry:
    """The tree in `data`; `ids` gives the token id of each rank. Raises IndexError if damaged."""
    head = data[0]
    tokens, probabilities = [0], [1.0]
    children = [(1, 1 + data[1])]
    at, last = 2, 1 + data[1]
    while len(tokens) < last:
        node = data[at]
        byte = data[at + 1]
        at += 2
        number = node & 15
        if number == CHILDREN_FOLLOW:
            number, byte = byte, data[at]
            at += 1
        rank = byte & 127
        shift = 7
        while byte > 127:
            byte = data[at]
            at += 1
            rank |= (byte & 127) << shift
            shift += 7
        tokens.append(ids[rank])
        probabilities.append(PROBABILITIES[node >> 4])
        children.append((last, last + number))
        last += number
    return CrestEntry(COUNTS[head & 31], head >> 5, tokens, probabilities, children)


def find(page: bytes, mark: int) -> bytes:
    """The entry with `mark` on `page`; empty if there is none."""
    number = page[0]
    wanted = mark.to_bytes(2, "little")
    last = 1 + 2 * number
    at = page.find(wanted, 1, last)
    while at >= 0 and not at & 1:
        at = page.find(wanted, at + 1, last)
    if at < 0:
        return b""
    index = at >> 1
    start = last + number + 2 * sum(page[last : last + index])
    return page[start : start + 2 * page[last + index]]


PAGE_BYTES = 320
"""Target size: small compared with SQLite's pages, so that these fill up; large compared with the
cost of a row."""

KEY_BYTES = 3
"""Size of an entry's mark and length on its page."""

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Encoded entries, not yet on pages, one after another.

    Attributes:
        hashes: hashes of their n-grams.
        lengths: bytes of each entry.
        utilities: sum over the nodes of each entry.
        data: the bytes of all entries.
    """

    hashes: Wide
    lengths: NDArray[np.uint16]
    utilities: NDArray[np.float32]
    data: Bytes

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def starts(self) -> Index:
        """Offset of each entry in `data`."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        ends -= self.lengths
        return ends

    def take(self, rows: NDArray[np.bool_]) -> list[bytes]:
        """The bytes of the entries `rows`."""
        spans = zip(self.starts[rows].tolist(), self.lengths[rows].tolist(), strict=True)
        return [self.data[start : start + length].tobytes() for start, length in spans]


class EntryCollector:
    """Collects the entries of many trees; their bytes are in a column until `entries`."""

    def __init__(self, data: SpilledColumn) -> None:
        self._data = data
        self._parts: list[Entries] = []

    def add(self, part: Entries) -> None:
        """Append the entries of `part`."""
        self._data.append(part.data)
        self._parts.append(Entries(part.hashes, part.lengths, part.utilities, part.data[:0].copy()))

    def entries(self) -> Entries:
        """All entries; may be called once."""
        parts, self._parts = self._parts, []
        return Entries(
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
            np.concatenate([np.empty(0, np.uint16), *(part.lengths for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.utilities for part in parts)]),
            self._data.read(0, len(self._data)),
        )


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """The encoded properties of each node."""

    tokens: NDArray[np.uint32]
    counts: Index
    parent_counts: Index
    children: Index


def describe(levels: Sequence[Level], nodes: Nodes) -> NodeColumns:
    """The columns of `nodes`, which must be whole trees."""
    found = NodeColumns(
        np.zeros(len(nodes), dtype=np.uint32),
        occurrences(levels, nodes),
        np.zeros(len(nodes), dtype=np.int64),
        np.zeros(len(nodes), dtype=np.int64),
    )
    for deep in np.unique(nodes.depths).tolist():
        rows = np.flatnonzero(nodes.depths == deep)
        strings, level = nodes.strings[rows], levels[deep - 1]
        found.tokens[rows] = level.tokens[strings]
        found.parent_counts[rows] = levels[deep - 2].counts[level.prefixes[strings]]
        below = nodes.strings[nodes.depths == deep + 1]
        if len(below):
            parents = levels[deep].prefixes[below]
            found.children[rows] = np.bincount(parents, minlength=len(level))[strings]
    return found


def node_tokens(levels: Sequence[Level], nodes: Nodes) -> NDArray[np.uint32]:
    """The last token of each node."""
    found = np.zeros(len(nodes), dtype=np.uint32)
    for deep in np.unique(nodes.depths).tolist():
        rows = np.flatnonzero(nodes.depths == deep)
        found[rows] = levels[deep - 1].tokens[nodes.strings[rows]]
    return found


def count_tokens(
    trees: Iterable[tuple[Sequence[Level], Nodes]],
) -> tuple[NDArray[np.uint32], Index]:
    """The token ids in use, the most frequent first, then the lower id; and the number of nodes of
    each."""
    ids, counts = np.empty(0, np.uint32), np.empty(0, np.int64)
    for levels, nodes in trees:
        new, times = np.unique(node_tokens(levels, nodes), return_counts=True)
        ids, places = np.unique(np.concatenate([ids, new]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, times])).astype(np.int64)
    order = np.argsort(-counts, kind="stable")
    return ids[order], counts[order]


def spell(levels: Sequence[Level], length: int, strings: NDArray[np.int32]) -> list[Tokens]:
    """The tokens of `strings` of one length: column i holds their i-th."""
    columns = []
    for level in reversed(levels[:length]):
        columns.append(level.tokens[strings])
        strings = level.prefixes[strings]
    return columns[::-1]


def encode(
    levels: Sequence[Level],
    nodes: Nodes,
    columns: NodeColumns,
    ids: NDArray[np.uint32],
    *,
    exact: bool,
) -> Entries:
    """The entries of the n-grams of one length; with `exact` counts, texts can be subtracted."""
    by_id = np.argsort(ids)
    ranks = by_id[np.searchsorted(ids, columns.tokens, sorter=by_id)].astype(np.uint32)
    width = _number_width(ranks)
    many = columns.children >= CHILDREN_FOLLOW
    sizes = 1 + many + width
    firsts = np.flatnonzero(np.diff(nodes.roots, prepend=-1))
    numbers = np.diff(firsts, append=len(nodes))
    entry = np.repeat(np.arange(len(firsts)), numbers)
    roots, level = nodes.roots[firsts], levels[nodes.length - 1]
    keys = hash_columns(spell(levels, nodes.length, roots))
    trees = 2 + _sums(sizes, firsts)
    counts = _exact_counts(keys, level.counts[roots], columns, firsts) if exact else None
    lengths = trees + counts.lengths if counts else trees
    lengths += lengths & 1
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    data[starts] = level.kinds[roots].astype(np.int64) << 5 | count_level(level.counts[roots])
    data[starts + 1] = np.bincount(entry[nodes.depths == nodes.length + 1], minlength=len(firsts))
    at = np.repeat(starts + 2, numbers) + _offsets(sizes, firsts, numbers)
    levels_of = probability_level(columns.counts / columns.parent_counts)
    data[at] = levels_of << 4 | np.minimum(columns.children, CHILDREN_FOLLOW)
    data[at[many] + 1] = columns.children[many]
    _write_numbers(data, at + 1 + many, ranks, width)
    if counts:
        counts.write(data, starts + trees)
    utilities = np.bincount(entry, nodes.utilities, len(firsts)).astype(np.float32)
    return Entries(keys, lengths.astype(np.uint16), utilities, data)


@dataclass(frozen=True, slots=True)
class ExactCounts:
    """What follows the trees: for each entry its check, then its exact counts as numbers.

    Attributes:
        checks: one uint16 for each entry.
        lengths: bytes of each entry's check and counts.
        firsts, numbers: offset of each entry's counts in `counts`, and their number.
        counts: for each entry, the n-gram's count and its nodes'.
        widths: bytes of each count; 0 for one that follows from its half octave.
    """

    checks: Wide
    lengths: Index
    firsts: Index
    numbers: Index
    counts: Index
    widths: Index

    def write(self, data: Bytes, starts: Index) -> None:
        """Write the check and counts of each entry at its offset in `data`."""
        data[starts] = self.checks & np.uint64(0xFF)
        data[starts + 1] = self.checks >> np.uint64(8)
        at = np.repeat(starts + 2, self.numbers) + _offsets(self.widths, self.firsts, self.numbers)
        _write_numbers(data, at, self.counts, self.widths)


def _exact_counts(
    keys: Wide, roots: NDArray[np.int32], columns: NodeColumns, firsts: Index
) -> ExactCounts:
    """The exact counts of n-grams that occurred `roots` times, and of their nodes."""
    counts = np.insert(columns.counts, firsts, roots)
    # The n-gram's own count stands for its parent's: both decide whether it is written.
    above = np.insert(columns.parent_counts, firsts, roots)
    widths = np.where(above >= MIN_AMBIGUOUS_COUNT, _number_width(counts), 0)
    starts = firsts + np.arange(len(firsts))
    numbers = np.diff(starts, append=len(counts))
    lengths = 2 + _sums(widths, starts)
    return ExactCounts(keys >> np.uint64(CHECK_SHIFT), lengths, starts, numbers, counts, widths)


def _sums(values: Index, firsts: Index) -> Index:
    """The sum of each run of `values`, which begin at `firsts`."""
    return np.add.reduceat(values, firsts) if len(firsts) else firsts


def _offsets(sizes: Index, firsts: Index, numbers: Index) -> Index:
    """The offset of each item within its run, given the sizes of all items."""
    before = np.cumsum(sizes) - sizes
    return before - np.repeat(before[firsts], numbers)


def _number_width(numbers: NDArray[np.uint32] | Index) -> Index:
    """Bytes of each number, at 7 bits per byte."""
    width: Index = (
        1 + (numbers > 0x7F) + (numbers > 0x3FFF) + (numbers > 0x1FFFFF) + (numbers > 0xFFFFFFF)
    )
    return width


def _write_numbers(
    data: Bytes, at: Index, numbers: NDArray[np.uint32] | Index, width: Index
) -> None:
    """Write each number at its offset, 7 bits per byte, the lowest first."""
    for byte in range(int(width.max(initial=0))):
        rows = np.flatnonzero(width > byte)
        more = np.where(width[rows] > byte + 1, 0x80, 0)
        data[at[rows] + byte] = numbers[rows] >> 7 * byte & 0x7F | more


def fitting(entries: Entries, most: int) -> NDArray[np.bool_]:
    """Which entries have the highest utility per byte, at most `most` bytes in all."""
    fits = entries.lengths <= MAX_ENTRY_BYTES
    cost = entries.lengths.astype(np.int64) + KEY_BYTES
    if int(cost[fits].sum()) > most:
        order = np.lexsort((entries.hashes, -entries.utilities / cost))
        order = order[fits[order]]
        fits[order[int(np.searchsorted(np.cumsum(cost[order]), most, side="right")) :]] = False
    return fits


PAGES_AT_ONCE = 1 << 12
"""Pages built at a time: their Python objects take many times their bytes."""


def pages(entries: Entries, kept: NDArray[np.bool_], number: int) -> Iterator[tuple[int, bytes]]:
    """The non-empty pages, ascending, of a store of `number` pages with the `kept` entries."""
    hashes = entries.hashes[kept]
    page = (hashes >> np.uint64(MARK_BITS)) % np.uint64(number)
    marks = hashes & np.uint64((1 << MARK_BITS) - 1)
    order = np.lexsort((hashes, page << np.uint64(MARK_BITS) | marks))
    page, order = page[order], np.flatnonzero(kept)[order]
    starts = entries.starts[order]
    for first in range(0, number, PAGES_AT_ONCE):
        here = slice(*np.searchsorted(page, np.array([first, first + PAGES_AT_ONCE], np.uint64)))
        yield from _pages(entries, page[here], order[here], starts[here])


def _pages(
    entries: Entries, page: Wide, rows: NDArray[np.intp], starts: Index
) -> Iterator[tuple[int, bytes]]:
    """The pages of the entries `rows`, which begin at `starts`."""
    marks = entries.hashes[rows].astype("<u2").tobytes()
    lengths = entries.lengths[rows]
    halves = (lengths >> 1).astype(np.uint8).tobytes()
    data = entries.data.data
    spans = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    firsts = np.flatnonzero(np.diff(page.astype(np.int64), prepend=-1))
    lasts = np.minimum(np.append(firsts[1:], len(page)), firsts + MAX_PAGE_ENTRIES)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        head = bytes([last - first]) + marks[2 * first : 2 * last] + halves[first:last]
        body = b"".join(data[start : start + size] for start, size in spans[first:last])
        yield int(page[first]), head + body
