"""The dense index as drafting sees it: keys and streams in memory, asked without ever waiting.

Owns the index, the streams and the lock between the one thread that adds and the one that asks.
Where the lock is taken, or nothing has been loaded yet, there is no answer, and the asker goes on
without. Refuses to know files and how neighbours become a draft.

All token streams of a dense index in one array, and where each document's tokens lie in it.

A *place* is an index into the array. Documents are kept apart by `GAP`s, so that a continuation
never runs from one into another; a document that grows after others were added goes on behind them.
Refuses to know keys, files and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from datastores.dense.generations import Generation
from datastores.dense.index import FEW, FaissIndex, FewIndex, Index, Neighbours
from datastores.dense.projection import Codes, Floats, Projection
from datastores.dense.store import DenseStore

Tokens = NDArray[np.int32]
Places = NDArray[np.int64]

GAP = -1
"""Stands between documents, and where a document was forgotten."""
ROOM = 256
"""Gaps kept behind the last token: windows may be read past the end."""


class TokenArena:
    """Tokens of many documents, appended to and looked up by document and position.

    Attributes:
        tokens: int32, `GAP` where there is none; valid until the next `extend`.
        end: the first place that is free.
    """

    def __init__(self) -> None:
        self.tokens: Tokens = np.full(4 * ROOM, GAP, np.int32)
        self.end = ROOM
        self._runs: dict[int, list[tuple[int, int, int]]] = {}

    def extend(self, document: int, start: int, tokens: Sequence[int] | Tokens) -> None:
        """Append tokens of a document, whose first is at position `start` of it."""
        runs = self._runs.setdefault(document, [])
        follows = bool(runs) and self._follows(runs[-1], start)
        if not follows:
            self.end += 1
            runs.append((start, self.end, 0))
        first, place, length = runs[-1]
        self._make_room(len(tokens))
        self.tokens[self.end : self.end + len(tokens)] = tokens
        self.end += len(tokens)
        runs[-1] = (first, place, length + len(tokens))

    def places(self, document: int, positions: NDArray[np.int64]) -> Places:
        """Places of positions of a document; -1 for those it does not hold."""
        places = np.full(len(positions), -1, np.int64)
        for first, place, length in self._runs.get(document, ()):
            inside = (positions >= first) & (positions < first + length)
            places[inside] = positions[inside] - first + place
        return places

    def owned(self, document: int, places: Sequence[int]) -> list[bool]:
        """Which places lie in a document."""
        runs = [(place, place + length) for _, place, length in self._runs.get(document, ())]
        return [any(first <= place < end for first, end in runs) for place in places]

    def documents(self) -> set[int]:
        """The documents that were not forgotten."""
        return set(self._runs)

    def forget(self, document: int) -> None:
        """Overwrite a document's tokens; what looks at its places finds gaps."""
        for _, place, length in self._runs.pop(document, ()):
            self.tokens[place : place + length] = GAP

    def locate(self) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Places]:
        """What `places` tells, for many documents at once, each of which lies in one run now."""
        whole = sorted((d, *runs[0]) for d, runs in self._runs.items())
        documents, starts, places, lengths = np.array(whole, np.int64).reshape(-1, 4).T

        def located(owners: NDArray[np.int64], positions: NDArray[np.int64]) -> Places:
            if not len(documents):
                return np.full(len(owners), -1, np.int64)
            rows = np.searchsorted(documents, owners).clip(max=len(documents) - 1)
            offsets = positions - starts[rows]
            known = (documents[rows] == owners) & (offsets >= 0) & (offsets < lengths[rows])
            found: Places = np.where(known, places[rows] + offsets, -1)
            return found

        return located

    def _follows(self, run: tuple[int, int, int], start: int) -> bool:
        first, place, length = run
        return first + length == start and place + length == self.end

    def _make_room(self, more: int) -> None:
        needed = self.end + more + ROOM
        if needed > len(self.tokens):
            grown = np.full(max(needed, len(self.tokens) * 5 // 4), GAP, np.int32)
            grown[: self.end] = self.tokens[: self.end]
            self.tokens = grown


BACK = 8
"""Tokens before the root that are compared with a neighbour's."""
_AROUND = np.arange(-BACK, ROOM - BACK)
"""Offsets of the tokens before a place, at it and after it."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The nearest past states that led to the same token, nearest first (n of them).

    Attributes:
        similarities: [n], cosine of their keys with the state asked for.
        matches: [n], how many tokens before the root agree, up to `BACK`.
        present: [n], whether they lie in the document that is being written.
        continuations: [n][length], what followed; what stands behind a `GAP` means nothing.
    """

    similarities: list[float]
    matches: list[int]
    present: list[bool]
    continuations: list[list[int]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Everything of one generation."""

    projection: Projection
    index: Index


class DenseMemory:
    """One model's keys. `add*`, `load` and `forget` belong to one thread, `recall` to another.

    Args:
        vocabulary: number of token ids.
    """

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._stream = TokenArena()
        self._loaded: _Loaded | None = None
        self._present = 0

    def __len__(self) -> int:
        """Keys that can be found."""
        return len(self._loaded.index) if self._loaded else 0

    @property
    def serves(self) -> bool:
        """Whether there is a projection to search by."""
        return self._loaded is not None

    def recall(
        self, state: Floats, token: int, before: Sequence[int], k: int, length: int
    ) -> Matches | None:
        """The `k` nearest keys of states that led to `token`, with `length` tokens that followed.

        Args:
            state: float32 [width], the state that produced `token`.
            before: the tokens before it, the last one last.

        Returns:
            None where nothing is loaded, or the index is just being added to.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if not self._loaded:
                return None
            query = self._loaded.projection.query(state)
            found = self._loaded.index.search(query, token, k)
            return self._read(found, token, before, length)
        finally:
            self._lock.release()

    def load(self, store: DenseStore, generation: Generation | None) -> None:
        """Read all streams and a generation's keys from disk, in place of what is held.

        The old generation goes first: two at once would take twice the memory.
        """
        with self._lock:
            self._loaded = None
        stream = TokenArena()
        for document, tokens in store.streams():
            stream.extend(document, 0, tokens)
        loaded = self._fill(store, generation, stream) if generation else None
        with self._lock:
            self._stream, self._loaded = stream, loaded

    def serve(self, projection: Projection) -> None:
        """Begin with an empty index: the first projection was just fitted."""
        self._loaded = _Loaded(projection, FewIndex(projection.dimensions, projection.scale))

    def begin(self, document: int) -> None:
        """An answer is being written in `document`: what it holds is present."""
        self._present = document

    def add_tokens(self, document: int, start: int, tokens: Sequence[int]) -> None:
        """Append to a document's stream."""
        with self._lock:
            self._stream.extend(document, start, tokens)

    def add_states(self, document: int, positions: NDArray[np.int64], states: Floats) -> None:
        """Add keys of states float32 [n, width] that produced the tokens at `positions`."""
        if self._loaded:
            codes = self._loaded.projection.encode(states)
            with self._lock:
                places = self._stream.places(document, positions)
                self._add(self._loaded.index, self._stream, places, codes)
            if len(self) > FEW and isinstance(self._loaded.index, FewIndex):
                self._loaded = replace(
                    self._loaded, index=self._loaded.index.moved(self._vocabulary)
                )

    def documents(self) -> set[int]:
        """The documents that are held. For the thread that adds."""
        return self._stream.documents()

    def forget(self, document: int) -> None:
        """Draft from a document no more."""
        with self._lock:
            self._stream.forget(document)

    def _fill(self, store: DenseStore, generation: Generation, stream: TokenArena) -> _Loaded:
        projection = generation.projection
        index = self._empty(store.counts(generation)[1], projection, stream)
        # Some may be of documents that another process has written since the streams were read.
        located = stream.locate()
        for batch in store.keys(generation):
            places = located(batch.documents, batch.positions)
            self._add(index, stream, places, batch.codes)
        return _Loaded(projection, index)

    def _empty(self, count: int, projection: Projection, stream: TokenArena) -> Index:
        """What takes in `count` keys of `stream`."""
        if count <= FEW:
            return FewIndex(projection.dimensions, projection.scale)
        index = FaissIndex(self._vocabulary, projection.dimensions, projection.scale)
        known = stream.tokens[(stream.tokens >= 0) & (stream.tokens < self._vocabulary)]
        index.reserve(np.bincount(known, minlength=self._vocabulary))
        return index

    def _read(self, found: Neighbours, token: int, before: Sequence[int], length: int) -> Matches:
        """What stands around the places found, but for those that were forgotten and those whose
        stream does not go on."""
        places = found.positions
        around = self._stream.tokens[places[:, None] + _AROUND[: BACK + 1 + length]].tolist()
        owned = self._stream.owned(self._present, places.tolist())
        back = list(before[-BACK:])
        recall = Matches([], [], [], [])
        for similarity, present, words in zip(found.similarities, owned, around, strict=True):
            if words[BACK] == token and words[BACK + 1] != GAP:
                recall.similarities.append(similarity)
                recall.matches.append(_common_end(words[:BACK], back))
                recall.present.append(present)
                recall.continuations.append(words[BACK + 1 :])
        return recall

    def _add(
        self, index: Index, stream: TokenArena, places: NDArray[np.int64], codes: Codes
    ) -> None:
        """Add keys whose place is known and whose token this vocabulary has."""
        tokens = stream.tokens[places]
        held = (places >= 0) & (tokens >= 0) & (tokens < self._vocabulary)
        index.add(codes[held], tokens[held], places[held])


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common suffix."""
    length = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        length += 1
    return length
