"""The dense index in memory: one list of keys for each next token, scanned whole.

DReSD searches all keys and then throws away neighbours whose continuation starts with another token
than the one already known, x_{t+1}; that starves the result. Here the list *is* the filter: exact,
and short enough that no approximation is needed. Keys stay 8-bit; distances are whole numbers.

Lists of up to `FEW` keys in all are scanned by NumPy, larger ones by faiss (four nanoseconds a key
on one core): both find the same, but loading faiss takes longer than a short command should.

Owns the lists. Refuses to know streams, files and threads: callers take turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datastores.dense.projection import Codes, Floats

Positions = NDArray[np.int64]

FEW = 100_000
"""Keys up to which NumPy scans them: a list of the commonest token then takes a fifth of a
millisecond."""
BATCH = 1 << 16
"""Keys handed to faiss at a time: it takes floats, four times their size."""
ROOM = 16
"""Keys a list of NumPy's has room for at first."""


class Neighbours(NamedTuple):
    """What a search found, nearest first.

    Attributes:
        positions: int64 [n], as they were added.
        similarities: [n], cosines where keys have unit length. A list, as what is done with so few
            numbers takes NumPy longer than Python.
    """

    positions: Positions
    similarities: list[float]


class Index(Protocol):
    """Exact nearest neighbours among the keys of one partition."""

    def __len__(self) -> int:
        """Keys in all partitions."""
        ...

    def add(self, codes: Codes, partitions: NDArray[np.integer], positions: Positions) -> None:
        """Add keys uint8 [n, dimensions], each to its partition, under its position."""
        ...

    def search(self, query: Floats, partition: int, k: int) -> Neighbours:
        """The nearest `k`, or as many as there are, to float32 [dimensions], a key times the scale
        and shifted as codes are."""
        ...


class FewIndex:
    """An `Index` of NumPy's.

    Args:
        dimensions: bytes of a key.
        scale: codes for a coordinate of 1.
    """

    def __init__(self, dimensions: int, scale: float) -> None:
        self._dimensions = dimensions
        self._scale = scale
        self._lists: dict[int, _Keys] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, codes: Codes, partitions: NDArray[np.integer], positions: Positions) -> None:
        for partition in np.unique(partitions).tolist():
            rows = partitions == partition
            keys = self._lists.get(partition)
            if keys is None:
                keys = self._lists[partition] = _Keys(self._dimensions)
            keys.add(codes[rows], positions[rows])
        self._count += len(codes)

    def search(self, query: Floats, partition: int, k: int) -> Neighbours:
        keys = self._lists.get(partition)
        if keys is None:
            return Neighbours(np.empty(0, np.int64), [])
        distances = keys.codes[: keys.count].astype(np.float32) @ query
        distances *= np.float32(-2.0)
        distances += keys.squares[: keys.count]
        if k < keys.count:
            nearest = distances.argpartition(k)[:k]
            nearest = nearest[distances[nearest].argsort(kind="stable")]
        else:
            nearest = distances.argsort(kind="stable")
        offset, half = float(query @ query), 0.5 / self._scale**2
        similarities = [1.0 - half * (far + offset) for far in distances[nearest].tolist()]
        return Neighbours(keys.positions[nearest], similarities)

    def moved(self, partitions: int) -> FaissIndex:
        """The same keys under faiss."""
        index = FaissIndex(partitions, self._dimensions, self._scale)
        for partition, keys in self._lists.items():
            owners = np.full(keys.count, partition)
            index.add(keys.codes[: keys.count], owners, keys.positions[: keys.count])
        return index


class _Keys:
    """The keys of one partition, in arrays that grow by half.

    Attributes:
        squares: float32 [n], sums of squares: a distance is then one product.
    """

    def __init__(self, dimensions: int) -> None:
        self.count = 0
        self.codes: Codes = np.empty((ROOM, dimensions), np.uint8)
        self.squares: Floats = np.empty(ROOM, np.float32)
        self.positions: Positions = np.empty(ROOM, np.int64)

    def add(self, codes: Codes, positions: Positions) -> None:
        """Append."""
        end = self.count + len(codes)
        if end > len(self.codes):
            room = max(end, len(self.codes) * 3 // 2)
            self.codes = np.resize(self.codes, (room, self.codes.shape[1]))
            self.squares = np.resize(self.squares, room)
            self.positions = np.resize(self.positions, room)
        self.codes[self.count : end] = codes
        self.squares[self.count : end] = (codes.astype(np.float32) ** 2).sum(axis=1)
        self.positions[self.count : end] = positions
        self.count = end


class FaissIndex:
    """An `Index` of faiss's: inverted lists that callers choose themselves.

    Args:
        partitions: how many there are: the size of the vocabulary.
        dimensions: bytes of a key.
        scale: codes for a coordinate of 1.
    """

    def __init__(self, partitions: int, dimensions: int, scale: float) -> None:
        import faiss

        # The coarse quantiser only fills its place.
        self._coarse = faiss.IndexFlatL2(dimensions)
        self._index: Any = faiss.IndexIVFScalarQuantizer(
            self._coarse,
            dimensions,
            partitions,
            faiss.ScalarQuantizer.QT_8bit_direct,
            faiss.METRIC_L2,
            False,
        )
        self._index.is_trained = True
        self._lists: Any = self._index.invlists
        self._pointer = faiss.swig_ptr
        self._squared = 2.0 * scale * scale
        self._query = np.zeros((1, dimensions), np.float32)
        self._partition = np.zeros((1, 1), np.int64)
        self._coarse_distance = np.zeros((1, 1), np.float32)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def reserve(self, counts: NDArray[np.int64]) -> None:
        """Make room for `counts[p]` keys in partition p at once, so that lists do not grow by
        doubling."""
        for partition in np.flatnonzero(counts).tolist():
            held = self._lists.list_size(partition)
            self._lists.resize(partition, held + int(counts[partition]))
            self._lists.resize(partition, held)

    def add(self, codes: Codes, partitions: NDArray[np.integer], positions: Positions) -> None:
        for start in range(0, len(codes), BATCH):
            stop = min(start + BATCH, len(codes))
            keys = codes[start:stop].astype(np.float32)
            ids = np.ascontiguousarray(positions[start:stop], dtype=np.int64)
            lists = np.ascontiguousarray(partitions[start:stop], dtype=np.int64)
            pointers = [self._pointer(array) for array in (keys, ids, lists)]
            self._index.add_core(stop - start, *pointers)

    def search(self, query: Floats, partition: int, k: int) -> Neighbours:
        k = min(k, int(self._lists.list_size(partition)))
        distances, positions = np.empty(k, np.float32), np.empty(k, np.int64)
        if k:
            # It cuts fractions off, and what does not fit into a byte wraps around.
            np.clip(np.rint(query), 1.0, 255.0, out=self._query[0])
            self._partition[0, 0] = partition
            arrays = (self._query, self._partition, self._coarse_distance, distances, positions)
            near, lists, coarse, found, where = (self._pointer(array) for array in arrays)
            self._index.search_preassigned_c(1, near, k, lists, coarse, found, where, False)
        return Neighbours(positions, (1.0 - distances / self._squared).tolist())
