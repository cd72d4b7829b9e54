"""The dense index in memory, which drafting searches without ever waiting.

DReSD searches all keys and discards neighbours whose continuation does not start with the known
next token x_{t+1}, which leaves few results. Here each next token has its own list of keys, which
is scanned as a whole: the list *is* the filter, exact, and short enough that no approximation is
needed. Keys stay 8-bit; distances are whole numbers. (Of 50,000 synthetic keys: recall of the ten
nearest .967 in .022 ms; without lists, all keys as floats .953 in .376 ms, a graph (HNSW) .937 in
.044 ms, product quantisation .709 in .868 ms.)

A lock separates the one thread that adds from the one that searches. While the lock is taken, or
nothing has been loaded yet, a search returns None and the caller continues without a dense draft.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.flat_keys import ADD_KEYS, FlatKeys
from datastores.dense.projection import Codes, Floats, Projection
from datastores.dense.store import DenseStore, TextKeys, TextTokens

Integers = NDArray[np.int64]


class Neighbours(NamedTuple):
    """The result of a search, nearest first.

    Attributes:
        offsets: [n], the offsets under which the keys were added.
        similarities: [n], cosines. Lists, since for so few numbers NumPy is slower than Python.
    """

    offsets: list[int]
    similarities: list[float]


class InvertedLists:
    """Keys in lists that the caller chooses, held and scanned by faiss: 4 ns a key on one core.

    Args:
        count: number of lists: the size of the vocabulary.
        dimensions: bytes of a key.
        scale: codes for a coordinate of 1.
    """

    def __init__(self, count: int, dimensions: int, scale: float) -> None:
        import faiss

        # The coarse quantiser is never used, but faiss requires one.
        self._coarse = faiss.IndexFlatL2(dimensions)
        kind, metric = faiss.ScalarQuantizer.QT_8bit_direct, faiss.METRIC_L2
        self._index: Any = faiss.IndexIVFScalarQuantizer(
            self._coarse, dimensions, count, kind, metric, False
        )
        self._index.is_trained = True
        self._lists: Any = self._index.invlists
        self._dimensions = dimensions
        self._pointer, self._array = faiss.swig_ptr, faiss.rev_swig_ptr
        self._squared = 2.0 * scale * scale
        self._query = np.zeros((1, dimensions), np.float32)
        self._list = np.zeros((1, 1), np.int64)
        self._coarse_distance = np.zeros((1, 1), np.float32)
        self._arguments = [
            self._pointer(a) for a in (self._query, self._list, self._coarse_distance)
        ]
        self._found = np.empty(0, np.float32), np.empty(0, np.int64)
        self._results: list[Any] = []

    def __len__(self) -> int:
        """Number of keys in all lists."""
        return int(self._index.ntotal)

    def size(self, number: int) -> int:
        """Number of keys in a list."""
        return int(self._lists.list_size(number))

    def reserve(self, counts: Integers) -> None:
        """Make room for `counts[i]` more keys in each list i, which would otherwise grow by
        doubling."""
        for number in np.flatnonzero(counts).tolist():
            size = self.size(number)
            self._lists.resize(number, size + int(counts[number]))
            self._lists.resize(number, size)

    def add(self, codes: Codes, lists: NDArray[np.integer], offsets: Integers) -> None:
        """Add keys uint8 [n, dimensions], each to its list, under its offset."""
        for start in range(0, len(codes), ADD_KEYS):
            stop = min(start + ADD_KEYS, len(codes))
            keys = codes[start:stop].astype(np.float32)
            ids = np.ascontiguousarray(offsets[start:stop], dtype=np.int64)
            numbers = np.ascontiguousarray(lists[start:stop], dtype=np.int64)
            pointers = [self._pointer(array) for array in (keys, ids, numbers)]
            self._index.add_core(stop - start, *pointers)

    def search(self, query: Floats, number: int, k: int) -> Neighbours:
        """The nearest `k` in a list, or as many as there are, to float32 [dimensions], scaled and
        shifted like codes."""
        k = min(k, self.size(number))
        distances, offsets = self._memory(k)
        if k:
            # faiss truncates fractions, and values beyond a byte wrap around.
            np.rint(query, out=self._query[0])
            self._query.clip(1.0, 255.0, out=self._query)
            self._list[0, 0] = number
            near, lists, coarse = self._arguments
            self._index.search_preassigned_c(1, near, k, lists, coarse, *self._results, False)
        return Neighbours(offsets.tolist(), (1.0 - distances / self._squared).tolist())

    def _memory(self, k: int) -> tuple[Floats, Integers]:
        """Reused memory for distances [k] and offsets [k]: allocating it takes longer than the
        search."""
        if k > len(self._found[0]):
            self._found = np.empty(k, np.float32), np.empty(k, np.int64)
            self._results = [self._pointer(array) for array in self._found]
        distances, offsets = self._found
        return distances[:k], offsets[:k]

    def select(self, wanted: NDArray[np.bool_]) -> tuple[Codes, Integers]:
        """Keys of all lists, uint8 [n, dimensions], and their offsets [n], ascending: those for
        which `wanted`, indexed by offset, is true."""
        codes, offsets = [np.zeros((0, self._dimensions), np.uint8)], [np.zeros(0, np.int64)]
        for number in range(self._lists.nlist):
            if size := self.size(number):
                ids = self._array(self._lists.get_ids(number), size)
                mine = wanted[ids]
                if mine.any():
                    held = self._array(self._lists.get_codes(number), size * self._dimensions)
                    codes.append(held.reshape(size, -1)[mine])
                    offsets.append(ids[mine])
        joined = np.concatenate(offsets)
        order = np.argsort(joined)
        return np.concatenate(codes)[order], joined[order]


GAP = -1
"""Separates texts, and overwrites deleted ones."""
MARGIN = 256
"""Gaps after the last token, since windows may be read past the end."""


class TokenArena:
    """Tokens of many texts in one array, which is indexed by *offset*.

    Texts are separated by a `GAP`, so that no continuation runs from one into another; a text that
    grows after others were added continues after them, in another run.

    Attributes:
        tokens: int32, `GAP` where there is none; valid until the next `extend`.
        end: the first free offset.
    """

    def __init__(self) -> None:
        self.tokens: NDArray[np.int32] = np.full(4 * MARGIN, GAP, np.int32)
        self.end = MARGIN
        self._runs: dict[int, list[tuple[int, int, int]]] = {}

    def extend(self, text: int, start: int, tokens: Sequence[int] | NDArray[np.uint32]) -> None:
        """Append tokens of a text, the first of which is at position `start` of it."""
        runs = self._runs.setdefault(text, [])
        if not (runs and self._continues(runs[-1], start)):
            self.end += 1
            runs.append((start, self.end, 0))
        position, offset, length = runs[-1]
        self._reserve(len(tokens))
        self.tokens[self.end : self.end + len(tokens)] = tokens
        self.end += len(tokens)
        runs[-1] = (position, offset, length + len(tokens))

    def offsets(self, text: int, positions: Integers) -> Integers:
        """Offsets of positions of a text; -1 for positions that it does not have."""
        offsets = np.full(len(positions), -1, np.int64)
        for position, offset, length in self._runs.get(text, ()):
            inside = (positions >= position) & (positions < position + length)
            offsets[inside] = positions[inside] - position + offset
        return offsets

    def first_offsets(self, texts: Integers, positions: Integers) -> Integers:
        """As `offsets`, for many texts at once, each of which is in one run."""
        distinct, rows = np.unique(texts, return_inverse=True)
        runs = [self._runs.get(text, [(0, 0, 0)])[0] for text in distinct.tolist()]
        starts, offsets, lengths = np.array(runs, np.int64).reshape(-1, 3)[rows].T
        known = (positions >= starts) & (positions < starts + lengths)
        return np.where(known, positions - starts + offsets, -1)

    def texts_at(self, offsets: Integers) -> Integers:
        """The text of each offset; 0 where it was deleted."""
        runs = sorted((at, n, text) for text, each in self._runs.items() for _, at, n in each)
        starts, lengths, texts = np.array([(0, 0, 0), *runs], np.int64).T
        run = np.searchsorted(starts, offsets, "right") - 1
        return np.where(offsets < starts[run] + lengths[run], texts[run], 0)

    def around(self, offset: int, before: int, after: int) -> list[int]:
        """The tokens of one text from `before` to `after` tokens beside an offset."""
        window: list[int] = self.tokens[max(0, offset - before) : offset + after + 1].tolist()
        at = min(before, offset)
        first = next((i + 1 for i in range(at - 1, -1, -1) if window[i] == GAP), 0)
        last = next((i for i in range(at, len(window)) if window[i] == GAP), len(window))
        return window[first:last]

    def within(self, text: int, offsets: Sequence[int]) -> list[bool]:
        """Whether each offset belongs to a text."""
        inside = [False] * len(offsets)
        for _, start, length in self._runs.get(text, ()):
            for index, offset in enumerate(offsets):
                if start <= offset < start + length:
                    inside[index] = True
        return inside

    def within_any(self, texts: Collection[int]) -> NDArray[np.bool_]:
        """For every offset, whether it belongs to one of `texts`."""
        inside = np.zeros(len(self.tokens), np.bool_)
        for text in texts:
            for _, offset, length in self._runs.get(text, ()):
                inside[offset : offset + length] = True
        return inside

    def start(self, text: int) -> int:
        """The first offset of a text."""
        return self._runs[text][0][1] if self._runs.get(text) else self.end

    def texts(self) -> set[int]:
        """The texts that were not deleted."""
        return set(self._runs)

    def forget(self, text: int) -> None:
        """Overwrite a text's tokens with gaps."""
        for _, offset, length in self._runs.pop(text, ()):
            self.tokens[offset : offset + length] = GAP

    def _continues(self, run: tuple[int, int, int], start: int) -> bool:
        position, offset, length = run
        return position + length == start and offset + length == self.end

    def _reserve(self, more: int) -> None:
        needed = self.end + more + MARGIN
        if needed > len(self.tokens):
            grown = np.full(max(needed, len(self.tokens) * 5 // 4), GAP, np.int32)
            grown[: self.end] = self.tokens[: self.end]
            self.tokens = grown


LOOK_BACK = 8
"""Tokens before the root that are compared with a neighbour's."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The n nearest past states that led to the same token, nearest first.

    Attributes:
        similarities: [n], cosine of their keys with that of the given state.
        suffixes: [n], number of tokens before the root that agree, up to `LOOK_BACK`.
        current: [n], whether they belong to the text that is being written.
        continuations: [n][length], the tokens that followed; invalid after a `GAP`.
    """

    similarities: list[float]
    suffixes: list[int]
    current: list[bool]
    continuations: list[list[int]]


@dataclass(slots=True)
class FlatSnapshot:
    """The keys of `texts`, collected when the arena had `end` offsets, and all `added` since."""

    texts: frozenset[int]
    end: int
    keys: FlatKeys
    added: list[tuple[Codes, Integers]] = field(default_factory=list)

    def taken(self, inside: NDArray[np.bool_]) -> tuple[Codes, Integers]:
        """The added keys at offsets for which `inside` is true, by offset."""
        if not self.added:
            return np.zeros((0, 0), np.uint8), np.zeros(0, np.int64)
        codes, offsets = map(np.concatenate, zip(*self.added, strict=True))
        order = np.argsort(offsets)
        order = order[inside[offsets[order]]]
        return codes[order], offsets[order]


class DenseMemory:
    """One model's keys. `search` is for one thread, everything else for another."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._arena = TokenArena()
        self._keys: tuple[Projection, InvertedLists] | None = None
        self._current = 0
        self._flat: FlatSnapshot | None = None

    def __len__(self) -> int:
        """Number of searchable keys."""
        return len(self._keys[1]) if self._keys else 0

    def search(
        self, state: Floats, token: int, before: Sequence[int], k: int, length: int
    ) -> Matches | None:
        """The `k` nearest keys of states that led to `token`, with `length` tokens that followed.

        Args:
            state: float32 [width], the state that produced `token`.
            before: the tokens before it, the last one last.

        Returns:
            None if nothing is loaded, or the index is being added to.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if not self._keys:
                return None
            projection, lists = self._keys
            if not lists.size(token):
                return Matches([], [], [], [])
            found = lists.search(projection.query(state), token, k)
            return self._matches(found, token, before, length)
        finally:
            self._lock.release()

    def load(
        self, store: DenseStore, projection: Projection | None, cancelled: Callable[[], bool]
    ) -> None:
        """Read all token streams and keys from disk, unless `cancelled`."""
        arena = TokenArena()
        for text, tokens in store.token_streams():
            arena.extend(text, 0, tokens)
            if cancelled():
                return
        lists = self._fill(store, projection, arena, cancelled) if projection else None
        with self._lock:
            self._arena = arena
            self._keys = (projection, lists) if projection and lists is not None else None

    def serve(self, projection: Projection) -> None:
        """Start without keys, after the projection was fitted."""
        lists = self._lists(projection)
        with self._lock:
            self._keys = projection, lists

    def begin(self, text: int) -> None:
        """Set the text in which an answer is being written."""
        self._current = text

    def add_tokens(self, new: TextTokens) -> None:
        """Append to a text's token stream."""
        with self._lock:
            self._arena.extend(*new)

    def add_keys(self, new: TextKeys) -> None:
        """Add keys of states whose tokens were added before."""
        with self._lock:
            if self._keys:
                offsets = self._arena.offsets(new.text, new.positions)
                self._add(self._keys[1], self._arena, offsets, new.codes)

    def flat_keys(self, texts: frozenset[int]) -> FlatKeys | None:
        """The current keys of `texts`, for searches whatever they led to; None before the
        projection is fitted. For the thread that adds; the result may be used on another, until
        the next call.

        Keys of later offsets are added to those collected before: one new answer among 300,000
        keys takes 11 ms of CPU instead of 470.
        """
        if not self._keys:
            return None
        inside = self._arena.within_any(texts)
        keys = self._grown(texts, inside)
        if keys is None:
            projection, lists = self._keys
            codes, offsets = lists.select(inside)
            keys = FlatKeys(projection, codes, offsets, lambda where: self._arena.tokens[where])
        self._flat = FlatSnapshot(texts, self._arena.end, keys)
        return keys

    def _grown(self, texts: frozenset[int], inside: NDArray[np.bool_]) -> FlatKeys | None:
        """The keys collected before and later ones; None if those of `texts` are others."""
        before = self._flat
        if before is None or not before.texts <= texts:
            return None
        codes, offsets = before.taken(inside)
        new = (self._arena.start(text) for text in texts - before.texts)
        if min(new, default=before.end) < before.end or not before.keys.precede(offsets):
            return None
        return before.keys.extended(codes, offsets) if len(offsets) else before.keys

    def texts_at(self, offsets: Integers) -> Integers:
        """The text of each offset; 0 where it was deleted. For the thread that adds."""
        return self._arena.texts_at(offsets)

    def around(self, offset: int, before: int, after: int) -> list[int]:
        """See `TokenArena.around`. For the thread that adds."""
        return self._arena.around(offset, before, after)

    def texts(self) -> set[int]:
        """The texts in memory. For the thread that adds."""
        return self._arena.texts()

    def forget(self, text: int) -> None:
        """Exclude a text from searches."""
        with self._lock:
            self._arena.forget(text)

    def _lists(self, projection: Projection) -> InvertedLists:
        return InvertedLists(self._vocabulary, projection.dimensions, projection.scale)

    def _fill(
        self,
        store: DenseStore,
        projection: Projection,
        arena: TokenArena,
        cancelled: Callable[[], bool],
    ) -> InvertedLists | None:
        """All keys on disk; None if `cancelled`."""
        lists = self._lists(projection)
        known = arena.tokens[(arena.tokens >= 0) & (arena.tokens < self._vocabulary)]
        lists.reserve(np.bincount(known, minlength=self._vocabulary))
        for batch in store.keys(projection.dimensions):
            offsets = arena.first_offsets(batch.texts, batch.positions)
            self._add(lists, arena, offsets, batch.codes)
            if cancelled():
                return None
        return lists

    def _matches(
        self, found: Neighbours, token: int, before: Sequence[int], length: int
    ) -> Matches:
        """The surroundings of the offsets found, except those that were deleted and those at the
        end of their stream."""
        tokens, context = self._arena.tokens, list(before[-LOOK_BACK:])
        within = self._arena.within(self._current, found.offsets)
        matches = Matches([], [], [], [])
        for offset, similarity, current in zip(*found, within, strict=True):
            if tokens[offset] == token and tokens[offset + 1] != GAP:
                window = tokens[offset - LOOK_BACK : offset + 1 + length].tolist()
                matches.similarities.append(similarity)
                matches.suffixes.append(_common_suffix(window[:LOOK_BACK], context))
                matches.current.append(current)
                matches.continuations.append(window[LOOK_BACK + 1 :])
        return matches

    def _add(
        self, lists: InvertedLists, arena: TokenArena, offsets: Integers, codes: Codes
    ) -> None:
        """Add keys whose offset is known and whose token is in the vocabulary."""
        tokens = arena.tokens[offsets]
        valid = (offsets >= 0) & (tokens >= 0) & (tokens < self._vocabulary)
        lists.add(codes[valid], tokens[valid], offsets[valid])
        if self._flat is not None:
            self._flat.added.append((codes[valid], offsets[valid]))


def _common_suffix(one: Sequence[int], other: Sequence[int]) -> int:
    length, shorter = 0, min(len(one), len(other))
    while length < shorter and one[-1 - length] == other[-1 - length]:
        length += 1
    return length
