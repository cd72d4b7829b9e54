"""Counting: every string of up to some length of tokens that occurs in a set of texts.

This is the first half of building CREST. Level L of the table holds each distinct string of L
tokens with its count, its prefix of L - 1 tokens and the count of its suffix of L - 1 tokens, so
that the tree of continuations of any n-gram is a part of the table (crest.txt, section 4.2: all
continuations of an n-gram, as prefix counts). No string extends from one text into the next.
`datastores.crest.selection` decides which strings are kept.

All of it is sorting: the strings of a level are those of the level before, each split by the token
that follows. The data of each position (its token, and the string of the level before that begins
there) are in columns that may be files, and positions are read and sorted in blocks. The table is
bounded by raising the least number of occurrences until all counted strings fit. So memory depends
neither on the length of a text nor on the number of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.crest.columns import SpilledColumn
from datastores.crest.texts import KINDS, SLICE_POSITIONS, JoinedTexts
from datastores.pauses import pause_here

Ints = NDArray[np.int32]
Wide = NDArray[np.uint64]

BLOCK_POSITIONS = 1 << 22
"""Positions sorted at a time: some 50 bytes each."""
MAX_STRINGS = 1 << 24
"""Most strings in the table, of 16 bytes each. If there are more, only frequent ones are counted:
these suffice for the largest store that is built by default."""
MAX_TREE_STRINGS = 1 << 21
"""Most strings that begin with the same token: they are selected from together."""
NO_STRING = -1
"""Marks positions where no counted string begins."""


@dataclass(frozen=True, slots=True)
class Level:
    """All strings of one length, sorted by prefix, then by last token.

    Attributes:
        counts: occurrences.
        tokens: uint32, the last token.
        prefixes: index, in the level before, of the string without its last token.
        suffix_counts: occurrences of the string without its first token; 0 in the first level,
            where that is empty.
        kinds: uint8, the kind of most occurrences (the lowest among equals); empty if not
            requested.
    """

    counts: Ints
    tokens: NDArray[np.uint32]
    prefixes: Ints
    suffix_counts: Ints
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.counts)

    def within(self, rows: slice, first_prefix: int) -> Level:
        """The strings `rows`, as if the level before began at `first_prefix`."""
        prefixes = self.prefixes[rows] - np.int32(first_prefix)
        parts = self.counts[rows], self.tokens[rows], prefixes, self.suffix_counts[rows]
        return Level(*parts, self.kinds[rows])


@dataclass(frozen=True, slots=True)
class CountedStrings:
    """All strings that occur at least `least` times; level L is at index L - 1.

    Attributes:
        tokens: number of tokens of all texts.
    """

    levels: list[Level]
    least: int
    tokens: int


def count_strings(
    text: JoinedTexts, depth: int, least: int = 1, *, tagged: int = 0
) -> CountedStrings:
    """The levels 1 to `depth` of strings that occur at least `least` times, or more often if these
    would exceed `MAX_STRINGS`, or `MAX_TREE_STRINGS` for one first token.

    The first `tagged` levels have kinds. `depth` is below `MAX_REMAINING`.
    """
    counter = _StringCounter(text, least, tagged)
    for _ in range(depth):
        counter.add_level()
    return CountedStrings(counter.levels, counter.least, len(text))


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """Some positions of a slice of the text at which strings of one length begin.

    Attributes:
        start: start of the slice.
        rows: the positions, relative to `start`.
        keys: uint64, number of the string without its last token, and that token.
        suffixes: number of the string without its first token.
    """

    start: int
    rows: NDArray[np.intp]
    keys: Wide
    suffixes: Ints


class _StringCounter:
    """Counts one level after another.

    Attributes:
        levels: those counted so far.
        least: occurrences of the rarest strings in them.
    """

    def __init__(self, text: JoinedTexts, least: int, tagged: int) -> None:
        self.levels: list[Level] = []
        self.least = least
        self._text = text
        self._tagged = tagged
        # By position: the string of the last level that begins there.
        self._numbers = self._filled(0)
        self._next = self._filled(NO_STRING)

    def add_level(self) -> None:
        """Count the strings that are one token longer than those of the last level."""
        before = self._table_size()
        while True:
            parts, number = [], 0
            for first, last in self._ranges():
                parts.append(self._split(first, last, number))
                number += len(parts[-1])
                if before + number > MAX_STRINGS:
                    break
            else:
                break
            self._raise_least()
            self._fill(self._next, NO_STRING)
            before = self._table_size()
        self.levels.append(_concatenated(parts))
        self._numbers, self._next = self._next, self._numbers
        while tree_sizes(self.levels).max(initial=0) > MAX_TREE_STRINGS:
            self._raise_least()
        self._fill(self._next, NO_STRING)

    def _table_size(self) -> int:
        return sum(map(len, self.levels))

    def _filled(self, value: int) -> SpilledColumn:
        column = self._text.columns.new(np.int32)
        self._fill(column, value)
        return column

    def _fill(self, column: SpilledColumn, value: int) -> None:
        for start, stop in self._slices():
            column.write(start, np.full(stop - start, value, np.int32))

    def _slices(self) -> Iterator[tuple[int, int]]:
        for start in range(0, len(self._text), SLICE_POSITIONS):
            pause_here()
            yield start, min(start + SLICE_POSITIONS, len(self._text))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of strings of the last level that begin at up to `BLOCK_POSITIONS` positions, or
        single strings that begin at more."""
        sizes = self.levels[-1].counts if self.levels else np.array([len(self._text)])
        ends = np.cumsum(sizes, dtype=np.int64)
        first = 0
        while first < len(sizes):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + BLOCK_POSITIONS, side="right"))
            yield first, max(last, first + 1)
            first = max(last, first + 1)

    def _split(self, first: int, last: int, number: int) -> Level:
        """The strings that extend those from `first` to before `last`; numbers from `number` on
        are written to the positions where they begin."""
        sizes = self.levels[-1].counts if self.levels else np.array([len(self._text)])
        if last == first + 1 and sizes[first] > BLOCK_POSITIONS:
            return self._split_one(first, number)
        return self._split_some(first, last, number)

    def _split_some(self, first: int, last: int, number: int) -> Level:
        """`_split` by sorting all occurrences."""
        found = list(self._occurrences(first, last))
        keys = np.concatenate([np.empty(0, np.uint64), *(one.keys for one in found)])
        suffixes = np.concatenate([np.empty(0, np.int32), *(one.suffixes for one in found)])
        pause_here()
        order = np.argsort(keys, kind="stable")
        pause_here()
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        counts = np.diff(starts, append=len(keys))
        frequent = counts >= self.least
        named = np.where(frequent, np.cumsum(frequent) - 1, NO_STRING).astype(np.int32)
        numbers = np.empty(len(keys), np.int32)
        numbers[order] = np.repeat(named, counts)
        starts, counts = starts[frequent], counts[frequent]
        pause_here()
        kinds = self._kinds_of(found, numbers, len(counts))
        self._write(found, numbers, number)
        return self._level(keys[starts], counts, suffixes[order[starts]], kinds)

    def _split_one(self, string: int, number: int) -> Level:
        """`_split` for one string with many occurrences, slice by slice, since at most as many
        different tokens follow it as the vocabulary has."""
        keys, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
        suffixes = np.empty(0, np.int32)
        for found in self._occurrences(string, string + 1):
            new, at, times = np.unique(found.keys, return_index=True, return_counts=True)
            keys, places = np.unique(np.concatenate([keys, new]), return_inverse=True)
            counts = np.bincount(places, np.concatenate([counts, times])).astype(np.int64)
            merged = np.empty(len(keys), np.int32)
            merged[places] = np.concatenate([suffixes, found.suffixes[at]])
            suffixes = merged
        frequent = counts >= self.least
        keys, counts, suffixes = keys[frequent], counts[frequent], suffixes[frequent]
        kinds = np.zeros((len(keys) if self._is_tagged else 0, KINDS), np.int64)
        for found in self._occurrences(string, string + 1) if len(keys) else ():
            at = np.minimum(np.searchsorted(keys, found.keys), len(keys) - 1)
            numbers = np.where(keys[at] == found.keys, at, NO_STRING).astype(np.int32)
            if self._is_tagged:
                kinds += _kind_counts(numbers, self._kinds_at(found), len(keys))
            self._write([found], numbers, number)
        return self._level(keys, counts, suffixes, kinds.argmax(axis=1).astype(np.uint8))

    @property
    def _is_tagged(self) -> bool:
        return len(self.levels) < self._tagged

    def _level(
        self, keys: Wide, counts: NDArray[np.int64], suffixes: Ints, kinds: NDArray[np.uint8]
    ) -> Level:
        above = self.levels[-1].counts[suffixes] if self.levels else np.zeros(len(keys), np.int32)
        return Level(
            counts.astype(np.int32),
            (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32),
            (keys >> np.uint64(32)).astype(np.int32),
            above,
            kinds,
        )

    def _occurrences(self, first: int, last: int) -> Iterator[_Occurrences]:
        """Positions of strings of the next length that extend a string of the last level, from
        `first` to before `last`. Those whose suffix is too rare are left out."""
        length = len(self.levels) + 1
        for start, stop in self._slices():
            numbers = self._numbers.read(start, stop + 1)
            own = numbers[: stop - start]
            rows = np.flatnonzero((own >= first) & (own < last))
            if not len(rows):
                continue
            rows = rows[self._text.remaining.read(start, stop)[rows] >= length]
            suffixes = numbers[rows + 1] if self.levels else np.zeros(len(rows), np.int32)
            known = suffixes != NO_STRING
            rows, suffixes = rows[known], suffixes[known]
            keys = own[rows].astype(np.uint64) << np.uint64(32)
            keys |= self._text.tokens.read(start + length - 1, stop + length - 1)[rows]
            yield _Occurrences(start, rows, keys, suffixes)

    def _write(self, found: Iterable[_Occurrences], numbers: Ints, first: int) -> None:
        """Write which strings begin where, numbered from `first` on."""
        numbers = np.where(numbers == NO_STRING, NO_STRING, numbers + np.int32(first))
        done = 0
        for one in found:
            here = self._next.read(one.start, one.start + SLICE_POSITIONS).copy()
            here[one.rows] = numbers[done : done + len(one.rows)]
            self._next.write(one.start, here)
            done += len(one.rows)

    def _kinds_of(
        self, found: Sequence[_Occurrences], numbers: Ints, strings: int
    ) -> NDArray[np.uint8]:
        """The most frequent kind of each string's occurrences."""
        best = np.zeros(strings if self._is_tagged else 0, np.uint8)
        if not len(best):
            return best
        kinds = np.concatenate([self._kinds_at(one) for one in found])
        most = np.zeros(strings, np.int64)
        for kind in np.flatnonzero(np.bincount(kinds)):
            occurring = np.bincount(numbers[(kinds == kind) & (numbers >= 0)], minlength=strings)
            better = occurring > most
            best[better], most[better] = kind, occurring[better]
        return best

    def _kinds_at(self, found: _Occurrences) -> NDArray[Any]:
        kinds = self._text.kinds.read(found.start, found.start + SLICE_POSITIONS)
        return kinds[found.rows]

    def _raise_least(self) -> None:
        """Drop strings that are rarer than a limit, which is raised by half."""
        self.least = max(self.least + 1, self.least * 3 // 2)
        numbers = np.zeros(1, np.int32)
        for at, level in enumerate(self.levels):
            kept = level.counts >= self.least
            self.levels[at] = Level(
                level.counts[kept],
                level.tokens[kept],
                numbers[level.prefixes[kept]],
                level.suffix_counts[kept],
                level.kinds[kept] if len(level.kinds) else level.kinds,
            )
            numbers = np.where(kept, np.cumsum(kept) - 1, NO_STRING).astype(np.int32)
        if self.levels:
            numbers = np.append(numbers, np.int32(NO_STRING))  # maps NO_STRING to itself
            for start, stop in self._slices():
                self._numbers.write(start, numbers[self._numbers.read(start, stop)])


def _concatenated(parts: Sequence[Level]) -> Level:
    """The strings of all `parts`, in order."""
    if len(parts) == 1:
        return parts[0]
    empty = [np.empty(0, dtype) for dtype in (np.int32, np.uint32, np.int32, np.int32, np.uint8)]
    names = ("counts", "tokens", "prefixes", "suffix_counts", "kinds")
    return Level(
        *(
            np.concatenate([nothing, *(getattr(part, name) for part in parts)])
            for name, nothing in zip(names, empty, strict=True)
        )
    )


def _kind_counts(numbers: Ints, kinds: NDArray[np.uint8], strings: int) -> NDArray[np.int64]:
    """The number of each string's occurrences of each kind, [strings, KINDS]."""
    known = numbers != NO_STRING
    cells = numbers[known].astype(np.int64) * KINDS + kinds[known]
    return np.bincount(cells, minlength=strings * KINDS).reshape(strings, KINDS)


def tree_bounds(levels: Sequence[Level]) -> list[NDArray[np.intp]]:
    """For each level, where the strings with each first token begin, in the order of the first
    level, followed by the end."""
    bounds: list[NDArray[np.intp]] = []
    for level in levels:
        above = bounds[-1] if bounds else None
        bounds.append(
            np.arange(len(level) + 1)
            if above is None
            else np.searchsorted(level.prefixes, above.astype(np.int32))
        )
    return bounds


def tree_sizes(levels: Sequence[Level]) -> NDArray[np.intp]:
    """The number of strings that begin with each token."""
    return _tree_sizes(tree_bounds(levels))


def _tree_sizes(bounds: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    sizes: NDArray[np.intp] = np.stack([np.diff(one) for one in bounds]).sum(axis=0)
    return sizes


def parts_of(levels: Sequence[Level], strings: int) -> Iterator[list[Level]]:
    """The table in parts of at most `strings` strings, or of one first token. Each part has all
    strings that begin with some tokens, as if there were no others."""
    bounds = tree_bounds(levels)
    ends = np.cumsum(_tree_sizes(bounds))
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + strings, side="right")), first + 1)
        spans = [(int(one[first]), int(one[last])) for one in bounds]
        firsts = [0, *(start for start, _ in spans)]
        yield [
            level.within(slice(*span), above)
            for level, span, above in zip(levels, spans, firsts, strict=False)
        ]
        first = last
