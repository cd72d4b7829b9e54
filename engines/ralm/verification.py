"""Verification: the queries of several strides, searched in the whole knowledge base at once.

Asynchronous verification runs beside the decoding of strides, on a thread of its own. (The
paper simulated it: Python's interpreter lock. faiss, NumPy and SQLite release the lock while they
search, and llama.cpp while it decodes.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from types import TracebackType

from datastores.passages.exact import keep_to_this_thread
from datastores.passages.protocol import ScoredPassage
from engines.ralm.knowledge_base import KnowledgeBase, Query

Found = list[list[ScoredPassage]]


class Search:
    """A batch that is searched for, here or on another thread.

    Attributes:
        began: when, by `perf_counter`.
        waited: seconds for which nothing else was done.
    """

    def __init__(self, work: Callable[[], tuple[Found, float]], thread: Executor | None) -> None:
        self.began = perf_counter()
        self.waited = 0.0
        self._result: Future[tuple[Found, float]] = Future()
        if thread is not None:
            self._result = thread.submit(work)
        else:
            self._result.set_result(work())
            self.waited = perf_counter() - self.began

    @property
    def is_done(self) -> bool:
        """Whether `wait` returns at once."""
        return self._result.done()

    def wait(self) -> tuple[Found, float]:
        """What was found, and the seconds it took.

        Raises:
            SpecchatError: the knowledge base cannot be read.
        """
        started = perf_counter()
        found = self._result.result()
        self.waited += perf_counter() - started
        return found


class Verifier:
    """Searches batches of queries, one batch at a time. A context manager: it may own a thread.

    Args:
        limit: passages to return for each query: 1, or more to prefetch them.
        asynchronous: whether `begin` returns before the search is done.
    """

    def __init__(self, base: KnowledgeBase, limit: int, *, asynchronous: bool) -> None:
        self._base = base
        self._limit = limit
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
            self._thread.shutdown()

    def begin(self, queries: Sequence[Query], *, beside: bool, prefetches: bool) -> Search:
        """Search for `queries`, for the best passage of each alone unless it `prefetches`.

        Args:
            beside: something is done meanwhile; else the search is over when this returns.

        Raises:
            SpecchatError: here or by `Search.wait`: the knowledge base cannot be read.
        """
        work = partial(self._search, queries, self._limit if prefetches else 1)
        return Search(work, self._thread if beside else None)

    def _search(self, queries: Sequence[Query], limit: int) -> tuple[Found, float]:
        started = perf_counter()
        found = self._base.search(queries, limit)
        return found, perf_counter() - started
