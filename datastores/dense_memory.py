"""The dense index as drafting sees it: keys and streams in memory, asked without ever waiting.

Owns the index, the streams and the lock between the one thread that adds and the one that asks.
Where the lock is taken, or nothing has been loaded yet, there is no answer, and the asker goes on
without. Refuses to know files and how neighbours become a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from datastores.dense import DenseStore
from datastores.dense_codec import Codes, Projection
from datastores.dense_generations import Generation
from datastores.dense_index import FEW, FaissIndex, FewIndex, Index, Neighbours
from datastores.dense_moments import Floats
from datastores.dense_stream import GAP, ROOM, Stream

BACK = 8
"""Tokens before the root that are compared with a neighbour's."""
_AROUND = np.arange(-BACK, ROOM - BACK)
"""Offsets of the tokens before a place, at it and after it."""


@dataclass(frozen=True, slots=True)
class Recall:
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
        self._stream = Stream()
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
    ) -> Recall | None:
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
        stream = Stream()
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

    def _fill(self, store: DenseStore, generation: Generation, stream: Stream) -> _Loaded:
        projection = generation.projection
        index = self._empty(store.counts(generation)[1], projection, stream)
        # Some may be of documents that another process has written since the streams were read.
        located = stream.locate()
        for batch in store.keys(generation):
            places = located(batch.documents, batch.positions)
            self._add(index, stream, places, batch.codes)
        return _Loaded(projection, index)

    def _empty(self, count: int, projection: Projection, stream: Stream) -> Index:
        """What takes in `count` keys of `stream`."""
        if count <= FEW:
            return FewIndex(projection.dimensions, projection.scale)
        index = FaissIndex(self._vocabulary, projection.dimensions, projection.scale)
        known = stream.tokens[(stream.tokens >= 0) & (stream.tokens < self._vocabulary)]
        index.reserve(np.bincount(known, minlength=self._vocabulary))
        return index

    def _read(self, found: Neighbours, token: int, before: Sequence[int], length: int) -> Recall:
        """What stands around the places found, but for those that were forgotten and those whose
        stream does not go on."""
        places = found.positions
        around = self._stream.tokens[places[:, None] + _AROUND[: BACK + 1 + length]].tolist()
        owned = self._stream.owned(self._present, places.tolist())
        back = list(before[-BACK:])
        recall = Recall([], [], [], [])
        for similarity, present, words in zip(found.similarities, owned, around, strict=True):
            if words[BACK] == token and words[BACK + 1] != GAP:
                recall.similarities.append(similarity)
                recall.matches.append(_common_end(words[:BACK], back))
                recall.present.append(present)
                recall.continuations.append(words[BACK + 1 :])
        return recall

    def _add(self, index: Index, stream: Stream, places: NDArray[np.int64], codes: Codes) -> None:
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
