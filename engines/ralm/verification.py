"""Verification: the queries of several strides, searched in the whole knowledge base as one batch.

Asynchronous verification overlaps with the writing of strides, on a thread of its own. (The paper
only simulated it because of the GIL. faiss, NumPy and SQLite release the GIL while they search, and
llama.cpp while it decodes.)
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
"""The passages found for each query, and the seconds that the search took."""


class Search:
    """A running or finished search for a batch of queries.

    Attributes:
        began: start time, by `perf_counter`.
        waited: seconds that the caller was blocked.
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
        """The passages found, and the seconds that the search took.

        Raises:
            SpecchatError: the knowledge base cannot be read.
        """
        started = perf_counter()
        result = self._batch.result()
        self.waited += perf_counter() - started
        return result


class Verifier:
    """Searches one batch of queries at a time. A context manager, since it may own a thread.

    Args:
        limit: passages to return for each query: 1, or more to prefetch them.
        asynchronous: whether searches may overlap with writing.

    Attributes:
        searches: number of batches.
        queries: their total.
        seconds: wall time of the searches.
    """

    def __init__(self, base: KnowledgeBase, limit: int, *, asynchronous: bool) -> None:
        self.searches = self.queries = 0
        self.seconds = 0.0
        self._base = base
        self._limit = limit
        self._thread: ThreadPoolExecutor | None = None
        if asynchronous:
            # A search on all cores would slow the writing that it overlaps with.
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

    def begin(self, queries: Sequence[Query], *, overlapped: bool, prefetches: bool) -> Search:
        """Search for `queries`.

        Args:
            overlapped: return before the search is done; needs an asynchronous verifier.
            prefetches: return up to the limit of passages for each query, not only the best.

        Raises:
            SpecchatError: the knowledge base cannot be read. If overlapped, `Search.wait` raises.
        """
        self.searches += 1
        self.queries += len(queries)
        limit = self._limit if prefetches else 1
        if overlapped:
            assert self._thread is not None, "only an asynchronous verifier overlaps"
            return Search(self._thread.submit(self._search, queries, limit), 0.0)
        batch: Batch = Future()
        batch.set_result(self._search(queries, limit))
        return Search(batch, batch.result()[1])

    def _search(self, queries: Sequence[Query], limit: int) -> tuple[Found, float]:
        started = perf_counter()
        found = self._base.search(queries, limit)
        seconds = perf_counter() - started
        self.seconds += seconds
        return found, seconds
