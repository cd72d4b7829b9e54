"""Counting: every string of up to some length of tokens that occurs in a set of documents.

The first half of building CREST. Owns the table of strings: level L holds each distinct string of
L tokens with its count, its prefix of L - 1 tokens and its suffix of L - 1 tokens, so that the tree
of continuations of any n-gram is a part of the table (crest.txt, section 4.2: all continuations of
an n-gram, as prefix counts). A string never extends from one document into the next. Refuses to
know text and which strings are worth keeping (`datastores.crest.selection`).

All of it is sorting: the strings of a level are those of the level before, each split by the token
that follows. Positions are sorted in blocks, so that memory beyond the table is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

KINDS = 8
"""Kinds are numbers below this; the caller defines what they mean."""


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """One document, projected onto one tokenizer.

    Attributes:
        identity: a digest of the content, compared by its first eight bytes; a document counts
            once however often it is given.
        tokens: token ids below 2^32.
        kind: kind of source, 0 to `KINDS` - 1.
    """

    identity: bytes
    tokens: Sequence[int] | NDArray[np.uint32]
    kind: int


Ints = NDArray[np.int32]
Wide = NDArray[np.uint64]

BLOCK_POSITIONS = 1 << 22
"""Positions sorted at a time."""
MAX_REMAINING = 255
"""Distances to the end of a document are stored in one byte; larger ones do not matter."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """The documents as one array.

    Attributes:
        tokens: uint32 [positions].
        remaining: uint8 [positions], tokens from here to the end of the document, at most
            `MAX_REMAINING`.
        kinds: uint8 [positions], the kind of source.
    """

    tokens: NDArray[np.uint32]
    remaining: NDArray[np.uint8]
    kinds: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Level:
    """All strings of one length, sorted by prefix, then by last token.

    Attributes:
        counts: occurrences.
        tokens: uint32, the last token.
        prefixes: index, in the level before, of the string without its last token.
        suffixes: index, in the level before, of the string without its first token.
        positions: one position where the string begins.
        kinds: uint8, the kind of most occurrences (the lowest among equals); empty if not
            requested.
    """

    counts: Ints
    tokens: NDArray[np.uint32]
    prefixes: Ints
    suffixes: Ints
    positions: Ints
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.counts)


def join(documents: Iterable[TokenDocument]) -> TokenText:
    """All documents in one array, in order; empty ones add nothing."""
    tokens, remaining, kinds = [], [], []
    for document in documents:
        ids = np.asarray(document.tokens, dtype=np.uint32)
        tokens.append(ids)
        remaining.append(np.minimum(np.arange(len(ids), 0, -1), MAX_REMAINING).astype(np.uint8))
        kinds.append(np.full(len(ids), document.kind, dtype=np.uint8))
    empty = [np.empty(0, np.uint8)]
    return TokenText(
        np.concatenate([*tokens, np.empty(0, np.uint32)]),
        np.concatenate(remaining + empty),
        np.concatenate(kinds + empty),
    )


def count_strings(
    text: TokenText, depth: int, least: int = 1, *, tagged: int = 0, threads: int = 4
) -> list[Level]:
    """The levels 1 to `depth` of strings that occur at least `least` times.

    Level L is at index L - 1; the first `tagged` levels have their kinds. `depth` is below
    `MAX_REMAINING`.
    """
    levels: list[Level] = []
    positions = np.arange(len(text.tokens), dtype=np.int32)
    groups = np.zeros(len(positions), dtype=np.int32)
    group_at = np.zeros(len(positions) + 1, dtype=np.int32)
    with ThreadPoolExecutor(threads) as pool:
        for length in range(1, depth + 1):
            fits = text.remaining[positions] >= length
            positions, groups = positions[fits], groups[fits]
            level, positions, groups = _split(
                text, positions, groups, length, least, group_at, pool
            )
            group_at[:] = -1
            group_at[positions] = groups
            if length <= tagged:
                level = replace(level, kinds=_kinds(text.kinds[positions], groups, len(level)))
            levels.append(level)
    return levels


def _split(
    text: TokenText,
    positions: Ints,
    groups: Ints,
    length: int,
    least: int,
    group_at: Ints,
    pool: ThreadPoolExecutor,
) -> tuple[Level, Ints, Ints]:
    """One level from the positions of the level before, with its positions in the new order."""

    def part(block: slice) -> tuple[Level, Ints, Ints]:
        return _split_block(text, positions[block], groups[block], length, least, group_at)

    parts = list(pool.map(part, _blocks(groups)))
    first = 0
    for level, _, numbers in parts:
        numbers += first
        first += len(level)
    levels = [level for level, _, _ in parts]
    return (
        Level(
            *(
                np.concatenate([getattr(level, name) for level in levels])
                for name in ("counts", "tokens", "prefixes", "suffixes", "positions", "kinds")
            )
        ),
        np.concatenate([sorted_positions for _, sorted_positions, _ in parts]),
        np.concatenate([numbers for _, _, numbers in parts]),
    )


def _blocks(groups: Ints) -> Iterator[slice]:
    """Slices of about `BLOCK_POSITIONS` that split no group; at least one, maybe empty."""
    start = 0
    while True:
        stop = min(start + BLOCK_POSITIONS, len(groups))
        if stop < len(groups):
            stop = int(np.searchsorted(groups, groups[stop - 1], side="right"))
        yield slice(start, stop)
        if stop >= len(groups):
            return
        start = stop


def _split_block(
    text: TokenText, positions: Ints, groups: Ints, length: int, least: int, group_at: Ints
) -> tuple[Level, Ints, Ints]:
    keys = groups.astype(np.uint64) << np.uint64(32)
    keys |= text.tokens[positions + (length - 1)]
    order = np.argsort(keys, kind="stable")
    keys, positions = keys[order], positions[order]
    starts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    counts = np.diff(starts, append=len(keys))
    frequent = counts >= least
    starts, kept = starts[frequent], np.repeat(frequent, counts)
    counts = counts[frequent].astype(np.int32)
    heads, first_positions = keys[starts], positions[starts]
    level = Level(
        counts,
        (heads & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (heads >> np.uint64(32)).astype(np.int32),
        group_at[first_positions + 1],
        first_positions,
        np.empty(0, dtype=np.uint8),
    )
    numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return level, positions[kept], numbers


def _kinds(kinds: NDArray[np.uint8], groups: Ints, number: int) -> NDArray[np.uint8]:
    """The kind that most positions of each group have."""
    best = np.zeros(number, dtype=np.uint8)
    most = np.zeros(number, dtype=np.int64)
    for kind in np.flatnonzero(np.bincount(kinds, minlength=1)):
        found = np.bincount(groups[kinds == kind], minlength=number)
        better = found > most
        best[better], most[better] = kind, found[better]
    return best
