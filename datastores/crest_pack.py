"""Packing: kept trees as pages of bytes. The array half of `datastores.crest_codec`.

Owns the order of things on a page, which is a function of the trees alone: equal trees give equal
bytes, whatever the order of the documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest_codec import (
    MANY,
    MARK_BITS,
    MOST_ENTRIES,
    Bytes,
    Wide,
    chance_level,
    count_level,
    hash_columns,
)
from datastores.crest_select import Nodes, occurrences
from datastores.crest_strings import Level, Text

PAGE_BYTES = 320
"""Aimed at: small beside SQLite's pages, which then are full; large beside what a row costs."""

KEY_BYTES = 3
"""What finds an entry on its page: mark and length."""

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Encoded entries, not yet on pages.

    Attributes:
        hashes: of their n-grams.
        starts: where each entry begins in `data`.
        lengths: its bytes.
        worths: sum of what its nodes are worth.
        data: all bytes.
    """

    hashes: Wide
    starts: Index
    lengths: Index
    worths: NDArray[np.float64]
    data: Bytes

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class Columns:
    """What is written of each node: its token, counts of it and of its parent, its children."""

    tokens: NDArray[np.uint32]
    counts: Index
    parent_counts: Index
    children: Index


def describe(levels: Sequence[Level], nodes: Nodes) -> Columns:
    """The columns of `nodes`, which must be whole trees."""
    found = Columns(
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


def rank_tokens(columns: Sequence[Columns]) -> NDArray[np.uint32]:
    """The token ids in use, the most frequent first; the lower id among equals."""
    used = np.concatenate([column.tokens for column in columns])
    ids, counts = np.unique(used, return_counts=True)
    return ids[np.argsort(-counts, kind="stable")]


def encode(
    text: Text, levels: Sequence[Level], nodes: Nodes, columns: Columns, ids: NDArray[np.uint32]
) -> Entries:
    """The entries of the n-grams of one length."""
    by_id = np.argsort(ids)
    ranks = by_id[np.searchsorted(ids, columns.tokens, sorter=by_id)]
    width = 1 + (ranks > 0x7F) + (ranks > 0x3FFF) + (ranks > 0x1FFFFF) + (ranks > 0xFFFFFFF)
    many = columns.children >= MANY
    sizes = 1 + many + width
    firsts = np.flatnonzero(np.diff(nodes.roots, prepend=-1))
    lengths = 2 + (np.add.reduceat(sizes, firsts) if len(firsts) else firsts)
    padding = lengths & 1
    lengths += padding
    starts = np.cumsum(lengths) - lengths
    entry = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(nodes)))
    at = np.cumsum(sizes) - sizes + (2 * (entry + 1) + (np.cumsum(padding) - padding)[entry])
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    roots, level = nodes.roots[firsts], levels[nodes.length - 1]
    data[starts] = level.kinds[roots].astype(np.int64) << 5 | count_level(level.counts[roots])
    data[starts + 1] = np.bincount(entry[nodes.depths == nodes.length + 1], minlength=len(firsts))
    chances = chance_level(columns.counts / columns.parent_counts)
    data[at] = chances << 4 | np.minimum(columns.children, MANY)
    data[at[many] + 1] = columns.children[many]
    _write_numbers(data, at + 1 + many, ranks, width)
    places = level.places[roots]
    keys = hash_columns([text.tokens[places + offset] for offset in range(nodes.length)])
    worths = np.bincount(entry, nodes.worths, len(firsts)).astype(np.float64)
    return Entries(keys, starts, lengths, worths, data)


def _write_numbers(data: Bytes, at: Index, numbers: Index, width: Index) -> None:
    """Write each number at its place, 7 bits a byte, the low ones first."""
    for byte in range(int(width.max(initial=0))):
        rows = np.flatnonzero(width > byte)
        more = np.where(width[rows] > byte + 1, 0x80, 0)
        data[at[rows] + byte] = numbers[rows] >> 7 * byte & 0x7F | more


def join(parts: Sequence[Entries]) -> Entries:
    """All entries as one."""
    bases = np.cumsum([0, *(len(part.data) for part in parts)])
    return Entries(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.starts + base for part, base in zip(parts, bases, strict=False)]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.worths for part in parts]),
        np.concatenate([part.data for part in parts]),
    )


def fitting(entries: Entries, most: int) -> Entries:
    """The entries worth most for their bytes, `most` bytes in all."""
    cost = entries.lengths + KEY_BYTES
    order = np.lexsort((entries.hashes, -entries.worths / cost))
    fits = order[: int(np.searchsorted(np.cumsum(cost[order]), most, side="right"))]
    return Entries(
        entries.hashes[fits],
        entries.starts[fits],
        entries.lengths[fits],
        entries.worths[fits],
        entries.data,
    )


def pages(entries: Entries, number: int) -> Iterator[tuple[int, bytes]]:
    """The pages that are not empty, ascending, of a store of `number` pages."""
    page = (entries.hashes >> np.uint64(MARK_BITS)) % np.uint64(number)
    order = np.lexsort((entries.hashes, entries.hashes & np.uint64(0xFFFF), page))
    page = page[order]
    marks = entries.hashes[order].astype("<u2").tobytes()
    lengths = entries.lengths[order]
    halves = (lengths >> 1).astype(np.uint8).tobytes()
    data = entries.data.tobytes()
    spans = list(zip(entries.starts[order].tolist(), lengths.tolist(), strict=True))
    firsts = np.flatnonzero(np.diff(page.astype(np.int64), prepend=-1))
    lasts = np.minimum(np.append(firsts[1:], len(page)), firsts + MOST_ENTRIES)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        head = bytes([last - first]) + marks[2 * first : 2 * last] + halves[first:last]
        body = b"".join(data[start : start + size] for start, size in spans[first:last])
        yield int(page[first]), head + body
