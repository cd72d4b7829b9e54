"""Exact inner-product search over a matrix of vectors, for which a batch costs little more than one
query (EDR; RaLMSpec, appendix A.1).

A BLAS matrix product first packs the vectors, which for few queries takes longer than the product.
So vectors are multiplied a few at a time, without packing, by all queries of the batch while they
are in the processor's cache. For 100,000 vectors of 768 dimensions and batches of 1, 2, 4, 8 and
16, this takes 21, 22, 26, 36 and 59 ms on two idle cores; faiss's flat index takes 35, 42, 50, 57
and 64 ms, and many times that under load, since its threads synchronise at every block.

Only the best product of every `GROUP` vectors is kept. The `count` best groups contain the `count`
best vectors; their products are computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from threading import local
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from datastores.passages.embeddings import Vectors

Rows = NDArray[np.int64]

A = TypeVar("A")
B = TypeVar("B")

BLOCK = 4096
"""Vectors per iteration in Python, which takes about a millisecond."""
GROUP = 16
"""Vectors per group, of which the best product is kept."""
MAX_PRODUCT = 1 << 18
"""Multiplications of one matrix product; OpenBLAS starts its own threads for larger ones."""
MIN_STEP, MAX_STEP = 8, 64
"""Vectors multiplied at a time."""
MAX_THREADS = 8
"""Enough to saturate memory bandwidth."""


class ExactSearch:
    """Searches float32 `vectors` [n, width], which may be memory-mapped, without a copy."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def search(self, queries: Vectors, count: int) -> list[Rows]:
        """For each of `queries` [q, width] the rows of the `count` largest inner products, and some
        others, unordered.

        Sums are in single precision and any order: ask for more than needed, and rank them.
        """
        total = len(self._vectors)
        if count * GROUP >= total:
            return [np.arange(total)] * len(queries)
        peaks = self._peaks(np.ascontiguousarray(queries, np.float32))
        return [self._best(query, row, count) for query, row in zip(queries, peaks, strict=True)]

    def _peaks(self, queries: Vectors) -> Vectors:
        """The best product of each group with each query, [q, groups]."""
        total, blocks = len(self._vectors), -(-len(self._vectors) // BLOCK)
        peaks = np.empty((len(queries), blocks * (BLOCK // GROUP)), np.float32)
        # For the matrix-vector product of a single query, OpenBLAS would start its own threads.
        asked = queries if len(queries) > 1 else np.repeat(queries, 2, axis=0)
        share = -(-blocks // threads_to_use()) * BLOCK
        parts = [(first, min(first + share, total)) for first in range(0, total, share)]
        run = map if len(parts) == 1 else _threads().map
        list(run(lambda part: self._fill(peaks, asked, *part), parts))
        return peaks

    def _fill(self, peaks: Vectors, queries: Vectors, first: int, end: int) -> None:
        """Fill the peaks of the rows from `first`, where a block begins, to `end`."""
        products = np.full((len(queries), BLOCK), -np.inf, np.float32)
        for start in range(first, end, BLOCK):
            stop = min(start + BLOCK, end)
            if stop - start < BLOCK:
                products[:] = -np.inf
            _multiply(self._vectors[start:stop], queries, products)
            best = products.reshape(len(queries), GROUP, -1).max(axis=1)
            at = start // GROUP
            peaks[:, at : at + best.shape[1]] = best[: len(peaks)]

    def _best(self, query: Vectors, peaks: Vectors, count: int) -> Rows:
        """The rows of the `count` best groups with one of the `count` best products."""
        groups = np.flatnonzero(peaks >= np.partition(peaks, -count)[-count])
        rows = np.concatenate(list(_rows_of(groups)))
        rows = rows[rows < len(self._vectors)]
        products = np.einsum("nd,d->n", self._vectors[rows], query)
        least = np.partition(products, -count)[-count]
        found: Rows = rows[products >= least]
        return found


def _rows_of(groups: NDArray[np.intp]) -> Iterator[Rows]:
    """The rows of groups, which are `BLOCK // GROUP` apart within their block."""
    width = BLOCK // GROUP
    first = groups // width * BLOCK + groups % width
    for step in range(GROUP):
        yield first + step * width


def _multiply(vectors: Vectors, queries: Vectors, products: Vectors) -> None:
    """Write `queries` [q, width] times `vectors` [n, width] into `products` [q, n or more]."""
    size = MAX_PRODUCT // (len(queries) * vectors.shape[1])
    step = max(MIN_STEP, min(MAX_STEP, 1 << max(size, 1).bit_length() - 1))
    whole = len(vectors) // step * step
    stacked = vectors[:whole].reshape(-1, step, vectors.shape[1])
    out = products[:, :whole].reshape(len(queries), -1, step).transpose(1, 0, 2)
    np.matmul(queries, stacked.transpose(0, 2, 1), out=out)
    if whole < len(vectors):
        products[:, whole : len(vectors)] = queries @ vectors[whole:].T


def in_parallel(search: Callable[[Sequence[A]], list[B]], queries: Sequence[A]) -> list[B]:
    """The results of `search` for `queries`, divided among the threads.

    Consecutive queries stay together, so that a thread can share work between them.
    """
    share = -(-len(queries) // threads_to_use())
    if share in (0, len(queries)):
        return search(queries)
    parts = [queries[first : first + share] for first in range(0, len(queries), share)]
    return list(chain.from_iterable(_threads().map(search, parts)))


def keep_to_this_thread() -> None:
    """Run searches by the calling thread on it alone, since a model computes at the same time."""
    _this_thread.is_alone = True


def threads_to_use() -> int:
    """Number of threads for a search by the calling thread."""
    return 1 if getattr(_this_thread, "is_alone", False) else _thread_count()


_this_thread = local()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_thread_count(), "exact-search")


@cache
def _thread_count() -> int:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return max(1, min(len(allowed) or os.cpu_count() or 1, MAX_THREADS))
