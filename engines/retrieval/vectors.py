"""Exact and approximate inner-product search over the vectors of passages.

The exact dense retriever (EDR) is `exact.ExactSearch`, the approximate one (ADR) faiss's HNSW graph
(RaLMSpec, section 5.1). They only choose candidates, which are scored again with one kernel whose
result depends on the query and the vector alone, so that a passage's score and rank are the same in
a batch, alone, and among a few cached passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import StoreError
from datastores.passages.embeddings import Vectors
from engines.retrieval.exact import ExactSearch, Rows, threads_to_use

OVERFETCH = 8
"""Extra candidates, since their scores differ from the final ones in the last bits."""
SCORED_AT_ONCE = 1 << 12
"""Vectors converted to double precision at a time."""
HNSW_LINKS = 32
"""Links per node, faiss's default."""
REACH = 64
"""HNSW's `efSearch`, a trade-off between recall and time."""


class VectorIndex:
    """Vectors [n, width] with their ids.

    Args:
        approximate: search an HNSW graph instead of all vectors.
        reach: HNSW's `efSearch`, which is also the maximum number of results. It is fixed, since
            results depend on it.

    Raises:
        StoreError: the numbers of vectors and ids differ.
    """

    def __init__(
        self, vectors: Vectors, ids: Sequence[int], *, approximate: bool = False, reach: int = REACH
    ) -> None:
        if len(vectors) != len(ids):
            raise StoreError(f"{len(vectors)} vectors for {len(ids)} passages")
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        self._ids = np.array(ids, np.int64)
        self._by_id = np.argsort(self._ids)
        self._reach = reach
        self._exact = ExactSearch(self._vectors)
        self._graph = _graph(self._vectors, reach) if approximate else None

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
        if not len(self):
            return [[] for _ in queries]
        return [
            self._ranked(query, rows)[:limit]
            for query, rows in zip(queries, self._candidates(queries, limit), strict=True)
        ]

    def score(self, query: Vectors, ids: Sequence[int]) -> list[float]:
        """The score of each of `ids` for `query` [width].

        Raises:
            StoreError: an id is unknown.
        """
        asked = np.array(ids, np.int64)
        at = np.searchsorted(self._ids, asked, sorter=self._by_id)
        rows = self._by_id[np.minimum(at, len(self) - 1)] if len(self) else at
        missing = asked[self._ids[rows] != asked] if len(self) else asked
        if len(missing):
            raise StoreError(f"passage {missing[0]} has no vector")
        scores: list[float] = inner_products(self._vectors[rows], query).tolist()
        return scores

    def nearest_of(self, query: Vectors, ids: Sequence[int], limit: int) -> list[int]:
        """The `limit` of `ids` with the best scores for `query` [width], ties by id.

        Raises:
            StoreError: an id is unknown.
        """
        scores = [
            score
            for first in range(0, len(ids), SCORED_AT_ONCE)
            for score in self.score(query, ids[first : first + SCORED_AT_ONCE])
        ]
        order = np.lexsort((np.array(ids, np.int64), -np.array(scores)))
        return [ids[place] for place in order[:limit].tolist()]

    def _candidates(self, queries: Vectors, limit: int) -> list[Rows]:
        """For each query rows that include the best `limit`."""
        if self._graph is None:
            return self._exact.search(queries, limit + OVERFETCH)
        import faiss

        count = min(self._reach, len(self))
        faiss.omp_set_num_threads(threads_to_use())  # affects the calling thread only
        _, found = self._graph.search(np.ascontiguousarray(queries, np.float32), count)
        return [rows[rows >= 0] for rows in found]

    def _ranked(self, query: Vectors, rows: Rows) -> list[tuple[int, float]]:
        scores, ids = inner_products(self._vectors[rows], query), self._ids[rows]
        order = np.lexsort((ids, -scores))
        return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))


def inner_products(vectors: Vectors, query: Vectors) -> NDArray[np.float64]:
    """The inner product of each row with `query`, in double precision and a fixed order."""
    products: NDArray[np.float64] = vectors.astype(np.float64) * query.astype(np.float64)
    sums: NDArray[np.float64] = products.sum(axis=1)
    return sums


def _graph(vectors: Vectors, reach: int) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = reach
    index.add(vectors)
    return index
