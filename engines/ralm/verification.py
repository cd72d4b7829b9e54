"""Verification: the queries of several strides, searched in the whole knowledge base at once.

Asynchronous verification runs beside the decoding of strides, on a thread of its own. (The
paper simulated it: Python's interpreter lock. faiss, NumPy and SQLite release the lock while they
search, and llama.cpp while it decodes.)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType

from engines.ralm.knowledge_base import KnowledgeBase, Query
from engines.retrieval.exact import keep_to_this_thread
from engines.retrieval.protocol import ScoredPassage

Found = list[list[ScoredPassage]]
Batch = Future[tuple[Found, float]]
"""What is found for several queries, and the seconds that it took."""


class Search:
    """Queries that are searched for, here or on another thread.

    Attributes:
        began: when, by `perf_counter`.
        waited: seconds for which nothing else was done.
    """

    def __init__(self, batch: Batch, waited: float) -> None:
        self.began = perf_counter() - waited
        self.waited = waited
        self._batch = batch

    @property
    def is_done(self) -> bool:
        """Whether `wait` returns at once."""
        return self._batch.done()

    def wait(self) -> tuple[Found, float]:
        """What was found, and the seconds that the batch took.

        Raises:
            SpecchatError: the knowledge base cannot be read.
        """
        started = perf_counter()
        result = self._batch.result()
        self.waited += perf_counter() - started
        return result


class Verifier:
    """Searches batches of queries, one batch at a time. A context manager: it may own a thread.

    Args:
        limit: passages to return for each query: 1, or more to prefetch them.
        asynchronous: whether `begin` returns before the search is done.

    Attributes:
        searches: that were begun; queries: in them.
        seconds: that they took.
    """

    def __init__(self, base: KnowledgeBase, limit: int, *, asynchronous: bool) -> None:
        self.searches = self.queries = 0
        self.seconds = 0.0
        self._base = base
        self._limit = limit
        self._latest: Batch | None = None
        self._ended_at = 0.0  # the latest search, by `perf_counter`
        self._thread: ThreadPoolExecutor | None = None
        if asynchronous:
            # On all cores, it would slow the writing that it is hidden behind.
            self._thread = ThreadPoolExecutor(1, "ralm-verification", keep_to_this_thread)

    def __enter__(self) -> Verifier:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def ran_since(self, moment: float) -> bool:
        """Whether a search ran after `moment`, by `perf_counter`, or does."""
        running = self._latest is not None and not self._latest.done()
        return running or self._ended_at > moment

    def begin(self, queries: Sequence[Query], *, beside: bool, prefetches: bool) -> Search:
        """Search for `queries`, for the best passage of each alone unless it `prefetches`.

        Args:
            beside: something is done meanwhile; else the search is over when this returns.

        Raises:
            SpecchatError: here or by `Search.wait`: the knowledge base cannot be read.
        """
        started = perf_counter()
        batch = self._submit(queries, beside=beside, prefetches=prefetches)
        search = Search(batch, 0.0 if beside else perf_counter() - started)
        if not beside:
            search.wait()
        return search

    def _submit(self, queries: Sequence[Query], *, beside: bool, prefetches: bool) -> Batch:
        self.searches += 1
        self.queries += len(queries)
        limit = self._limit if prefetches else 1
        if beside and self._thread is not None:
            self._latest = self._thread.submit(self._search, queries, limit)
            return self._latest
        if self._latest is not None:
            self._latest.result()
        batch: Batch = Future()
        batch.set_result(self._search(queries, limit))
        return batch

    def _search(self, queries: Sequence[Query], limit: int) -> tuple[Found, float]:
        started = perf_counter()
        found = self._base.search(queries, limit)
        self._ended_at = perf_counter()
        self.seconds += self._ended_at - started
        return found, self._ended_at - started
