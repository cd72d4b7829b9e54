"""Verification: the queries of several strides, searched in the whole knowledge base at once.

Asynchronous verification runs beside the decoding of one more stride, on a thread of its own. (The
paper simulated it: Python's interpreter lock. faiss, NumPy and SQLite release the lock while they
search, and llama.cpp while it decodes.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType

from datastores.passages.exact import keep_to_this_thread
from datastores.passages.protocol import ScoredPassage
from engines.ralm.knowledge_base import KnowledgeBase, Query

Found = list[list[ScoredPassage]]


class Verifier:
    """Searches batches of queries, one batch at a time. A context manager: it may own a thread.

    Args:
        limit: passages to return for each query: 1, or more to prefetch them.
        asynchronous: whether `begin` returns before the search is done.

    Attributes:
        seconds: spent searching; waited: of those, without doing anything else.
    """

    def __init__(self, base: KnowledgeBase, limit: int, *, asynchronous: bool) -> None:
        self.seconds = self.waited = 0.0
        self._base = base
        self._limit = limit
        self._threads: ThreadPoolExecutor | None = None
        if asynchronous:
            # On all cores, it would slow the writing that it is hidden behind.
            self._threads = ThreadPoolExecutor(1, "ralm-verification", keep_to_this_thread)

    def __enter__(self) -> Verifier:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def begin(self, queries: Sequence[Query]) -> Callable[[], tuple[Found, float]]:
        """Search for `queries`; the result waits for what was found and the seconds it took.

        Raises:
            SpecchatError: there or here, the knowledge base cannot be read.
        """
        if self._threads is None:
            found = self.search(queries)
            return lambda: found
        return self._waiting(self._threads.submit(self._search, queries, self._limit))

    def search(self, queries: Sequence[Query], prefetches: bool = True) -> tuple[Found, float]:
        """As `begin`, with nothing beside it.

        Args:
            prefetches: whether more than the best passage of each query is wanted.
        """
        found = self._search(queries, self._limit if prefetches else 1)
        self.waited += found[1]
        return found

    def _search(self, queries: Sequence[Query], limit: int) -> tuple[Found, float]:
        started = perf_counter()
        found = self._base.search(queries, limit)
        seconds = perf_counter() - started
        self.seconds += seconds
        return found, seconds

    def _waiting(self, search: Future[tuple[Found, float]]) -> Callable[[], tuple[Found, float]]:
        def wait() -> tuple[Found, float]:
            started = perf_counter()
            found = search.result()
            self.waited += perf_counter() - started
            return found

        return wait
