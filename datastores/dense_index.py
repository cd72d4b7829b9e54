"""The dense index in memory: one faiss list for each next token, scanned whole.

DReSD searches all keys and then throws away neighbours whose continuation starts with another token
than the one already known, x_{t+1}; that starves the result. Here the list *is* the filter: exact,
and short enough that no approximation is needed (a scan reads 64 bytes a key, four nanoseconds on
one core). Keys stay 8-bit; distances are whole numbers.

Owns the lists. Refuses to know streams, files and threads: callers take turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from datastores.dense_codec import Codes
from datastores.dense_moments import Floats

Positions = NDArray[np.int64]

BATCH = 1 << 16
"""Keys handed to faiss at a time: it takes floats, four times their size."""


class Neighbours(NamedTuple):
    """What a search found, nearest first.

    Attributes:
        positions: int64 [n], as they were added.
        similarities: float32 [n], cosines where keys have unit length.
    """

    positions: Positions
    similarities: Floats


class PartitionedIndex:
    """Exact nearest neighbours among the keys of one partition.

    Args:
        partitions: how many there are: the size of the vocabulary.
        dimensions: bytes of a key.
        scale: codes for a coordinate of 1.
    """

    def __init__(self, partitions: int, dimensions: int, scale: float) -> None:
        # The coarse quantiser only fills its place: callers name the partition themselves.
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
        self._squared = 2.0 * scale * scale
        self._query = np.zeros((1, dimensions), np.float32)
        self._partition = np.zeros((1, 1), np.int64)
        self._coarse_distance = np.zeros((1, 1), np.float32)

    def __len__(self) -> int:
        """Keys in all partitions."""
        return int(self._index.ntotal)

    def reserve(self, counts: NDArray[np.int64]) -> None:
        """Make room for `counts[p]` keys in partition p at once, so that lists do not grow by
        doubling."""
        for partition in np.flatnonzero(counts).tolist():
            held = self._lists.list_size(partition)
            self._lists.resize(partition, held + int(counts[partition]))
            self._lists.resize(partition, held)

    def add(self, codes: Codes, partitions: NDArray[np.integer], positions: Positions) -> None:
        """Add keys uint8 [n, dimensions], each to its partition, under its position."""
        for start in range(0, len(codes), BATCH):
            stop = min(start + BATCH, len(codes))
            keys = codes[start:stop].astype(np.float32)
            ids = np.ascontiguousarray(positions[start:stop], dtype=np.int64)
            lists = np.ascontiguousarray(partitions[start:stop], dtype=np.int64)
            pointers = [faiss.swig_ptr(array) for array in (keys, ids, lists)]
            self._index.add_core(stop - start, *pointers)

    def search(self, code: Codes, partition: int, k: int) -> Neighbours:
        """The nearest `k`, or as many as there are, to uint8 [1, dimensions]."""
        k = min(k, int(self._lists.list_size(partition)))
        distances, positions = np.empty(k, np.float32), np.empty(k, np.int64)
        if k:
            self._query[:] = code
            self._partition[0, 0] = partition
            arrays = (self._query, self._partition, self._coarse_distance, distances, positions)
            query, lists, coarse, found, where = (faiss.swig_ptr(array) for array in arrays)
            self._index.search_preassigned_c(1, query, k, lists, coarse, found, where, False)
        return Neighbours(positions, 1.0 - distances / np.float32(self._squared))
