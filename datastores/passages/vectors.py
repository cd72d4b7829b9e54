"""Passages by their vectors: exact and approximate inner-product search over given embeddings.

The exact dense retriever (EDR) is faiss's flat index, the approximate one (ADR) its HNSW graph
(RaLMSpec, section 5.1). faiss only chooses candidates: they are scored again with one kernel whose
result depends on the query and the vector alone, ties by id, so that a passage's score and rank are
the same in a batch, alone, and among a few cached passages.

Owns the vectors in memory. Refuses to know what they encode, and where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import StoreError

Vectors = NDArray[np.float32]

OVERFETCH = 8
"""Candidates beyond those wanted: faiss's scores differ from ours in the last bits."""
HNSW_LINKS = 32
"""Links of each node: faiss's default for HNSW."""
MIN_BATCH = 2
"""Queries that are searched as one matrix product. faiss 1.15 scans all vectors once for each query
up to a batch of 128,000: sixteen queries over a million vectors then cost 14 times one (CPU time),
and as one product 3 to 4 times. The threshold is the whole process's, so it is set for each search
and put back after it; nothing but speed depends on it."""
REACH = 64
"""Nodes that an approximate search keeps in view: recall against time."""


_threshold = Lock()
"""Held while the threshold is ours: two searches at once would put back each other's."""


class VectorIndex:
    """Vectors [n, width], each with the id of what it stands for.

    Args:
        approximate: search an HNSW graph instead of all vectors.
        reach: of an approximate search, and most results it gives. The same for every search, since
            its best result depends on it.

    Raises:
        StoreError: there is not one id for each vector.
    """

    def __init__(
        self, vectors: Vectors, ids: Sequence[int], *, approximate: bool = False, reach: int = REACH
    ) -> None:
        if len(vectors) != len(ids):
            raise StoreError(f"{len(vectors)} vectors for {len(ids)} passages")
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        self._ids = np.array(ids, np.int64)
        self._rows = {number: row for row, number in enumerate(ids)}
        self._reach = reach if approximate else 0
        self._index = _graph(self._vectors, reach) if approximate else _flat(self._vectors)

    def __len__(self) -> int:
        return len(self._ids)

    def search(self, queries: Vectors, limit: int) -> list[list[tuple[int, float]]]:
        """For each row of `queries` [q, width] the best `limit` (id, score), ties by id.

        Raises:
            StoreError: the queries have another width.
        """
        if queries.shape[1] != self._vectors.shape[1]:
            raise StoreError(
                f"queries of {queries.shape[1]} dimensions for vectors of {self._vectors.shape[1]}:"
                " encode the passages again"
            )
        count = min(self._reach or limit + OVERFETCH, len(self))
        if not count:
            return [[] for _ in queries]
        with matrix_products():
            _, found = self._index.search(np.ascontiguousarray(queries, np.float32), count)
        return [
            self._ranked(query, rows[rows >= 0])[:limit]
            for query, rows in zip(queries, found, strict=True)
        ]

    def score(self, query: Vectors, ids: Sequence[int]) -> list[float]:
        """The score of each of `ids` for `query` [width].

        Raises:
            StoreError: one of them is not here.
        """
        missing = next((number for number in ids if number not in self._rows), None)
        if missing is not None:
            raise StoreError(f"passage {missing} has no vector")
        rows = np.array([self._rows[number] for number in ids], np.intp)
        scores: list[float] = inner_products(self._vectors[rows], query).tolist()
        return scores

    def _ranked(self, query: Vectors, rows: NDArray[np.int64]) -> list[tuple[int, float]]:
        scores, ids = inner_products(self._vectors[rows], query), self._ids[rows]
        order = np.lexsort((ids, -scores))
        return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))


def inner_products(vectors: Vectors, query: Vectors) -> NDArray[np.float64]:
    """Of each row with `query`, summed in double precision row by row, in one order."""
    products: NDArray[np.float64] = vectors.astype(np.float64) * query.astype(np.float64)
    sums: NDArray[np.float64] = products.sum(axis=1)
    return sums


@contextmanager
def matrix_products() -> Iterator[None]:
    """Search batches as matrix products meanwhile."""
    import faiss

    with _threshold:
        before = faiss.cvar.distance_compute_blas_threshold
        faiss.cvar.distance_compute_blas_threshold = MIN_BATCH
        try:
            yield
        finally:
            faiss.cvar.distance_compute_blas_threshold = before


def _flat(vectors: Vectors) -> Any:
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def _graph(vectors: Vectors, reach: int) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = reach
    index.add(vectors)
    return index
