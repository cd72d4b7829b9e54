"""Exact and approximate inner-product search over the vectors of passages.

The exact dense retriever (EDR) is `exact.ExactSearch`, the approximate one (ADR) faiss's HNSW graph
(RaLMSpec, section 5.1). They only choose candidates, which are scored again with one kernel whose
result depends on the query and the vector alone, so that a passage's score and rank are the same in
a batch, alone, and among a few cached passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import StoreError
from datastores.passages.embeddings import Vectors
from engines.retrieval.exact import ExactSearch, Rows, threads_to_use

OVERFETCH = 8
"""Extra candidates, since their scores differ from the final ones in the last bits."""
SCORED_AT_ONCE = 1 << 10
"""Passages whose vectors are converted to double precision at a time."""
HNSW_LINKS = 32
"""Links per node, faiss's default."""
REACH = 64
"""HNSW's `efSearch`, a trade-off between recall and time."""


class VectorIndex:
    """Vectors [n, width] with the ids of their passages. A passage's score is that of its best.

    Args:
        ids: ascending; of a passage with several vectors, once for each.
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
        self._known, starts = np.unique(self._ids, return_index=True)
        self._starts = np.append(starts, len(self._ids))  # of each passage, and the end
        self._reach = reach
        self._exact = ExactSearch(self._vectors)
        self._graph = _graph(self._vectors, reach) if approximate else None

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._known)

    @property
    def vectors_per_passage(self) -> float:
        """On average; 1.0 if there are none."""
        return len(self._ids) / len(self) if len(self) else 1.0

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
        count = ceil(limit * self.vectors_per_passage)
        candidates = self._candidates(queries, count)
        return [
            self._ranked(query, rows, limit, count)
            for query, rows in zip(queries, candidates, strict=True)
        ]

    def score(self, query: Vectors, ids: Sequence[int]) -> list[float]:
        """The score of each of `ids` for `query` [width].

        Raises:
            StoreError: an id is unknown.
        """
        asked = np.array(ids, np.int64)
        missing = asked[~np.isin(asked, self._known)]
        if len(missing):
            raise StoreError(f"passage {missing[0]} has no vector")
        at = np.searchsorted(self._known, asked)
        starts, sizes = self._starts[at], self._starts[at + 1] - self._starts[at]
        before = np.cumsum(sizes) - sizes
        rows = np.repeat(starts - before, sizes) + np.arange(sizes.sum())
        products = inner_products(self._vectors[rows], query)
        scores: list[float] = np.maximum.reduceat(products, before).tolist() if ids else []
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

    def _candidates(self, queries: Vectors, count: int) -> list[Rows]:
        """For each query rows that include the best `count`."""
        if self._graph is None:
            return self._exact.search(queries, count + OVERFETCH)
        import faiss

        reach = min(self._reach, len(self._ids))
        faiss.omp_set_num_threads(threads_to_use())  # affects the calling thread only
        _, found = self._graph.search(np.ascontiguousarray(queries, np.float32), reach)
        return [rows[rows >= 0] for rows in found]

    def _ranked(
        self, query: Vectors, rows: Rows, limit: int, count: int
    ) -> list[tuple[int, float]]:
        """The best `limit` passages, from `rows` that include the best `count`."""
        scores, ids = inner_products(self._vectors[rows], query), self._ids[rows]
        order = np.lexsort((ids, -scores))
        # Beyond the best `count`, better rows may be missing.
        best = order if len(rows) == len(self._ids) else order[:count]
        ranked: dict[int, float] = {}
        for number, score in zip(ids[best].tolist(), scores[best].tolist(), strict=True):
            ranked.setdefault(number, score)
        if len(ranked) < limit and len(best) < len(self._ids) and self._graph is None:
            # Few passages have most of the best vectors.
            (rows,) = self._candidates(query[None], 2 * count)
            return self._ranked(query, rows, limit, 2 * count)
        return list(ranked.items())[:limit]


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
