"""Verification: the queries of several strides, searched in the whole knowledge base at once.

Asynchronous verification runs beside the decoding of strides, on a thread of its own. (The
paper simulated it: Python's interpreter lock. faiss, NumPy and SQLite release the lock while they
search, and llama.cpp while it decodes.) On the same thread, queries that may come are searched for
beforehand; those that do come need no search of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from types import TracebackType
from typing import NamedTuple

from datastores.passages.exact import keep_to_this_thread
from datastores.passages.protocol import ScoredPassage
from engines.ralm.knowledge_base import KnowledgeBase, Query

Found = list[list[ScoredPassage]]
Batch = Future[tuple[Found, float]]
"""What is found for several queries, and the seconds that it took."""


class Place(NamedTuple):
    """Where the passages of one query are found."""

    batch: Batch
    at: int


class Search:
    """Queries that are searched for, here or on another thread.

    Args:
        places: of all of them: in `batch`, or in an earlier one where they were foreseen.
        batch: None if all were.

    Attributes:
        queries: that were not foreseen.
        began: when, by `perf_counter`.
        waited: seconds for which nothing else was done.
    """

    def __init__(self, places: Sequence[Place], batch: Batch | None, waited: float = 0.0) -> None:
        self.queries = sum(place.batch is batch for place in places)
        self.began = perf_counter() - waited
        self.waited = waited
        self._places = places
        self._batch = batch

    @property
    def is_done(self) -> bool:
        """Whether `wait` returns at once."""
        return all(place.batch.done() for place in self._places)

    def wait(self) -> tuple[Found, float]:
        """What was found, and the seconds that the batch took.

        Raises:
            SpecchatError: the knowledge base cannot be read.
        """
        started = perf_counter()
        found = [place.batch.result()[0][place.at] for place in self._places]
        self.waited += perf_counter() - started
        return found, self._batch.result()[1] if self._batch is not None else 0.0


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
        self._foreseen: dict[str, Place] = {}
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
        new = [query for query in queries if query.text not in self._foreseen]
        batch = self._submit(new, beside=beside, prefetches=prefetches) if new else None
        here = _places(new, batch) if batch is not None else {}
        places = [here.get(query.text) or self._foreseen[query.text] for query in queries]
        search = Search(places, batch, 0.0 if beside else perf_counter() - started)
        if not beside:
            search.wait()
        return search

    def foresee(self, queries: Sequence[Query], *, prefetches: bool) -> None:
        """Search beside what is done next for queries that may come."""
        if queries:
            batch = self._submit(queries, beside=True, prefetches=prefetches)
            self._foreseen |= _places(queries, batch)

    @property
    def foresaw(self) -> bool:
        """Whether any query was foreseen."""
        return bool(self._foreseen)

    def foreseen(self, text: str) -> Search | None:
        """The search for a query that was foreseen; None if it was not."""
        place = self._foreseen.get(text)
        return Search([place], None) if place is not None else None

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


def _places(queries: Sequence[Query], batch: Batch) -> dict[str, Place]:
    """Where `batch` holds the passages of `queries`, by their texts."""
    return {query.text: Place(batch, at) for at, query in enumerate(queries)}
