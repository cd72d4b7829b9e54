"""The unfiltered access path to a dense index: the keys of chosen texts in one flat array.

Drafting searches the keys of states that led to one token (`memory.py`); KNN-LM needs the nearest
states whatever they led to. The array is a snapshot of the keys. Their tokens are looked up when
they are found, so deleted texts are no longer found.

Distances are whole numbers until they are scaled: both keys are bytes, and no sum exceeds the 24
bits of a float. So they are the same in a batch, alone and in a small subset, in any order of
summation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.projection import Codes, Floats, Projection

Rows = NDArray[np.int64]
Tokens = NDArray[np.int32]

ADD_KEYS = 1 << 16
"""Keys passed to faiss at a time: it takes floats, four times their size."""


class StateMatches(NamedTuple):
    """The nearest keys, nearest first, ties by row.

    Attributes:
        rows: int64 [n], rows of the flat array.
        distances: float64 [n], squared, between keys of unit length: from 0 to 4.
        tokens: int32 [n], the tokens that the states led to.
    """

    rows: Rows
    distances: NDArray[np.float64]
    tokens: Tokens

    def nearest(self, k: int) -> StateMatches:
        """The first `k` matches."""
        return StateMatches(self.rows[:k], self.distances[:k], self.tokens[:k])


class FlatKeys:
    """Keys that are all searched, by faiss: 4 ns a key on one core.

    Args:
        codes: uint8 [n, dimensions].
        offsets: int64 [n], ascending; keys at adjacent offsets follow one another in a text.
        tokens: offsets → the tokens there; negative if they were deleted.
        make_index: codes → a faiss index by squared distance.
    """

    def __init__(
        self,
        projection: Projection,
        codes: Codes,
        offsets: Rows,
        tokens: Callable[[Rows], Tokens],
        make_index: Callable[[Codes], Any] | None = None,
    ) -> None:
        self._projection = projection
        self._codes = codes
        self._offsets = offsets
        self._tokens = tokens
        self._index = (make_index or _scalar_index)(codes)

    def precede(self, offsets: Rows) -> bool:
        """Whether all keys are at lower offsets than `offsets`, which ascend."""
        return not (len(self) and len(offsets)) or bool(self._offsets[-1] < offsets[0])

    def extended(self, codes: Codes, offsets: Rows) -> FlatKeys:
        """These keys and later ones, in the same index: afterwards `self` cannot be searched."""
        _add_codes(self._index, codes)
        codes = np.concatenate([self._codes, codes])
        offsets = np.concatenate([self._offsets, offsets])
        return FlatKeys(self._projection, codes, offsets, self._tokens, lambda _: self._index)

    def __len__(self) -> int:
        return len(self._offsets)

    def encode(self, state: Floats) -> Floats:
        """The key of a state float32 [width]: float32 [dimensions], whole numbers from 1 to 255."""
        key: Floats = np.clip(np.rint(self._projection.query(state)), 1.0, 255.0)
        return key

    def search(self, keys: Floats, k: int) -> list[StateMatches]:
        """For each of `keys` [q, dimensions], the nearest `k`, or as many as there are."""
        count = min(k, len(self))
        if not count:
            return [self._matches(self._offsets[:0], np.zeros(0)) for _ in keys]
        distances, rows = self._index.search(np.ascontiguousarray(keys), count)
        return [
            self._matches(found[found >= 0], near[found >= 0])
            for near, found in zip(distances, rows, strict=True)
        ]

    def subset(self, rows: Rows) -> KeySubset:
        """The keys of `rows` only, which must ascend."""
        return KeySubset(self._codes[rows].astype(np.float32), rows, self._matches)

    def offsets(self, rows: Rows) -> Rows:
        """The offsets of `rows`."""
        return self._offsets[rows]

    def following(self, rows: Rows, count: int) -> Rows:
        """The up to `count` rows after each of `rows` within its text."""
        after = rows[:, None] + np.arange(1, count + 1)
        inside = np.minimum(after, len(self) - 1)
        steps = self._offsets[inside] - self._offsets[rows][:, None]
        found: Rows = after[(inside == after) & (steps == np.arange(1, count + 1))]
        return found

    def _matches(self, rows: Rows, distances: NDArray[np.floating]) -> StateMatches:
        """Sort matches and drop those that were deleted; `distances` are between codes."""
        tokens = self._tokens(self._offsets[rows])
        present = np.flatnonzero(tokens >= 0)
        order = present[np.lexsort((rows[present], distances[present]))]
        scaled = distances[order].astype(np.float64) / self._projection.scale**2
        return StateMatches(rows[order], scaled, tokens[order])


class KeySubset:
    """A few keys, compared by NumPy.

    Args:
        vectors: their codes, float32 [n, dimensions].
        rows: int64 [n], ascending.
        matches: (rows, distances between codes) → sorted matches.
    """

    def __init__(
        self,
        vectors: Floats,
        rows: Rows,
        matches: Callable[[Rows, NDArray[np.floating]], StateMatches],
    ) -> None:
        self._vectors = vectors
        self._norms = np.einsum("nd,nd->n", vectors, vectors)
        self._rows = rows
        self._matches = matches

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, keys: Floats, k: int) -> list[StateMatches]:
        """As `FlatKeys.search`, among these keys."""
        products = keys @ self._vectors.T
        norms = np.einsum("qd,qd->q", keys, keys)
        distances = norms[:, None] - 2.0 * products + self._norms
        return [self._nearest(row, k) for row in distances]

    def _nearest(self, distances: Floats, k: int) -> StateMatches:
        chosen = np.arange(len(distances))
        if k < len(distances):
            # One number that sorts by distance, then by row.
            ranks = distances.astype(np.float64) * len(distances) + chosen
            chosen = np.argpartition(ranks, k)[:k]
        return self._matches(self._rows[chosen], distances[chosen])


def _scalar_index(codes: Codes) -> Any:
    """An index of the unchanged bytes: 64 for each key."""
    import faiss

    kind = faiss.ScalarQuantizer.QT_8bit_direct
    index = faiss.IndexScalarQuantizer(codes.shape[1], kind, faiss.METRIC_L2)
    index.is_trained = True
    _add_codes(index, codes)
    return index


def _add_codes(index: Any, codes: Codes) -> None:
    for start in range(0, len(codes), ADD_KEYS):
        index.add(codes[start : start + ADD_KEYS].astype(np.float32))
