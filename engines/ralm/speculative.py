"""RaLMSpec: strides written under guessed passages, verified in batches, and the same text.

Algorithm 1 of the paper, with its three accelerations, each of which may be off:

- prefetching (P): a verification puts the best `prefetch` passages of each query into the cache;
- the stride scheduler (S): how many strides are written before their queries are verified, none
  where it is better to search first;
- asynchronous verification (A): one more stride is written while a batch is verified.

The stride before which a batch's first wrong guess was made is written again under the passage that
the verification found, so it needs none itself. Only confirmed strides are yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from datastores.passages.protocol import Passage
from engines.ralm.cache import SpeculativeCache
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase, Query
from engines.ralm.scheduler import StrideScheduler, Verification
from engines.ralm.sequential import encode, record_writing
from engines.ralm.stride_writer import RalmRequest, StrideWriter, number_of
from engines.ralm.verification import Found, Verifier

PREFETCH, PREFETCH_FAR = 20, 256
"""Passages for each query (section 5.1), and the larger number that the paper compares it with."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The passage that the cache has for a stride; `start` is its first token in the answer.

    Attributes:
        seconds: the stride took to write; 0 before.
    """

    start: int
    query: Query
    document: Passage | None
    seconds: float = 0.0


class SpeculativeRalm:
    """Writes one answer.

    Args:
        prefetch: passages of each verified query to put into the cache; 1 is no prefetching.
        asynchronous: verify on a thread of its own.
    """

    def __init__(
        self,
        writer: StrideWriter,
        base: KnowledgeBase,
        request: RalmRequest,
        scheduler: StrideScheduler,
        statistics: RalmStatistics,
        *,
        prefetch: int = PREFETCH,
        asynchronous: bool = True,
    ) -> None:
        self._writer = writer
        self._base = base
        self._request = request
        self._scheduler = scheduler
        self._statistics = statistics
        self._verifier = Verifier(base, prefetch, asynchronous=asynchronous)
        self._asynchronous = asynchronous
        self._cache = SpeculativeCache(base)
        self._next = len(request.written)  # where the next stride starts
        self._before: int | None = None

    def write(self) -> Generator[ConfirmedStride]:
        """Answer the request.

        Raises:
            ContextOverflowError: the first prompt does not fit into the context.
            SpecchatError: the knowledge base cannot be read.
        """
        try:
            with self._verifier:
                yield from self._write()
        finally:
            self._writer.close()

    def _write(self) -> Generator[ConfirmedStride]:
        yield self._first()
        pending: list[Guess] = []
        while not self._ended or pending:
            if not pending and not self._scheduler.stride:
                yield self._retrieve()
                continue
            while len(pending) < self._scheduler.stride and not self._ended:
                pending.append(self._speculate())
            batch, pending = pending, []
            started = perf_counter()
            wait = self._verifier.begin([guess.query for guess in batch])
            if self._asynchronous and self._scheduler.hides and not self._ended:
                pending.append(self._write_ahead())
            matched, found = self._verify(batch, wait, started if pending else None)
            for guess in batch[:matched]:
                yield self._confirmed(guess.start, guess.document)
            if matched < len(batch):
                wasted = (guess.seconds for guess in (*batch[matched:], *pending))
                self._statistics.wasted_s += sum(wasted)
                pending = []
                true = found[matched][0].passage if found[matched] else None
                yield self._correct(batch[matched], true)

    @property
    def _ended(self) -> bool:
        """Whether the answer ends before the next stride, as far as the guesses are right."""
        return bool(self._writer.finish) and len(self._writer.tokens) <= self._next

    def _first(self) -> ConfirmedStride:
        """The first stride: its query is searched, which fills the cache."""
        start = self._next
        query = self._encode(start)
        found, seconds = self._collect([query], self._verifier.search([query]))
        document = found[0][0].passage if found[0] else None
        started = perf_counter()
        self._write_stride(start, document)
        self._scheduler.began(seconds, perf_counter() - started)
        return self._confirmed(start, document)

    def _speculate(self) -> Guess:
        """As `_write_ahead`, with nothing beside it."""
        guess = self._write_ahead()
        self._scheduler.speculated(guess.seconds)
        return guess

    def _write_ahead(self) -> Guess:
        """Guess the next stride's passage and write under it."""
        started = perf_counter()
        guess = self._guess()
        self._write_stride(guess.start, guess.document)
        return replace(guess, seconds=perf_counter() - started)

    def _retrieve(self) -> ConfirmedStride:
        """Search for the next stride's passage, then write, as RaLMSeq does.

        If guesses could pay, one is compared with what is found, which tells the accuracy.
        """
        start, started = self._next, perf_counter()
        guess = self._guess() if self._scheduler.guesses else None
        query = guess.query if guess is not None else self._encode(start)
        waiting = perf_counter()
        found, search_s = self._collect([query], self._verifier.search([query], guess is not None))
        waited = perf_counter() - waiting
        document = found[0][0].passage if found[0] else None
        right = None if guess is None else number_of(guess.document) == number_of(document)
        if right is not None:
            self._statistics.right += right
            self._statistics.guesses += 1
        self._write_stride(start, document)
        self._scheduler.retrieved(search_s, perf_counter() - started - waited, right)
        return self._confirmed(start, document)

    def _guess(self) -> Guess:
        """The next stride's query and what the cache says to it."""
        start = self._next
        query = self._encode(start)
        looking = perf_counter()
        document = self._cache.guess(query)
        self._statistics.lookup_s += perf_counter() - looking
        return Guess(start, query, document)

    def _encode(self, start: int) -> Query:
        """The query of the stride that begins at `start`."""
        return encode(self._base, self._request, self._writer, start, self._statistics)

    def _verify(
        self,
        batch: Sequence[Guess],
        wait: Callable[[], tuple[Found, float]],
        began: float | None = None,
    ) -> tuple[int, Found]:
        """How many guesses of `batch` were right before the first wrong one, and what was found.

        Args:
            began: when the search did, if a stride was written beside it.
        """
        found, seconds = self._collect([guess.query for guess in batch], wait())
        best = [ranked[0].passage.id if ranked else None for ranked in found]
        pairs = enumerate(zip(batch, best, strict=True))
        wrong = (at for at, (guess, true) in pairs if number_of(guess.document) != true)
        matched = next(wrong, len(batch))
        statistics = self._statistics
        statistics.batches += 1
        statistics.stride_sum += len(batch)
        statistics.right += matched
        statistics.guesses += min(matched + 1, len(batch))
        together_s = 0.0 if began is None else perf_counter() - began
        self._scheduler.verified(Verification(len(batch), matched, seconds, together_s))
        return matched, found

    def _collect(
        self, queries: Sequence[Query], searched: tuple[Found, float]
    ) -> tuple[Found, float]:
        """Count a search and put what it found into the cache."""
        found, seconds = searched
        for ranked in found:
            self._cache.insert(ranked)
        statistics = self._statistics
        statistics.searches += 1
        statistics.queries += len(queries)
        statistics.search_s, statistics.waited_s = self._verifier.seconds, self._verifier.waited
        return found, seconds

    def _correct(self, guess: Guess, document: Passage | None) -> ConfirmedStride:
        """Take back what was written under a wrong guess and behind it, and write it anew."""
        self._statistics.rollbacks += 1
        self._statistics.discarded += len(self._writer.tokens) - guess.start
        started = perf_counter()
        self._writer.rewind(guess.start)
        self._write_stride(guess.start, document)
        self._scheduler.rewritten(perf_counter() - started)
        return self._confirmed(guess.start, document)

    def _write_stride(self, start: int, document: Passage | None) -> None:
        self._next = start + self._request.stride
        self._writer.write(document, start, self._next)
        record_writing(self._writer, self._statistics)

    def _confirmed(self, start: int, document: Passage | None) -> ConfirmedStride:
        """The stride that begins at `start`, whose passage is right."""
        end = start + self._request.stride
        self._statistics.strides += 1
        self._statistics.changes += bool(start) and number_of(document) != self._before
        self._before = number_of(document)
        last = self._ended and end == self._next
        steps = tuple(self._writer.confirm(end))
        return ConfirmedStride(document, steps, self._writer.finish if last else "")
