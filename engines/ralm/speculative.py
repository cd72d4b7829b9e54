"""RaLMSpec: strides written under guessed passages, verified in batches, and the same text.

Algorithm 1 of the paper, with its three accelerations, each of which may be off:

- prefetching (P): a verification puts the best `prefetch` passages of each query into the cache;
- the stride scheduler (S): how many strides are written before their queries are verified, none
  where it is better to search first;
- asynchronous verification (A): one more stride is written while a batch is verified, or, where a
  search is short, the very stride that is searched for.

The stride before which a batch's first wrong guess was made is written again under the passage that
the verification found, so it needs none itself. Only confirmed strides are yielded.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from datastores.passages.protocol import Passage, ScoredPassage
from engines.ralm.cache import SpeculativeCache
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase, Query
from engines.ralm.scheduler import HiddenStride, StrideScheduler, Verification
from engines.ralm.sequential import encode, record_writing
from engines.ralm.stride_writer import RalmRequest, StrideWriter, number_of
from engines.ralm.verification import Found, Search, Verifier

PREFETCH, PREFETCH_FAR = 20, 256
"""Passages for each query (section 5.1), and the larger number that the paper compares it with."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The passage that the cache has for a stride; `start` is its first token in the answer.

    Attributes:
        seconds: the stride took to write; 0 before.
        whole: whether it was written to its end, and under the passage of the one before.
    """

    start: int
    query: Query
    document: Passage | None
    seconds: float = 0.0
    whole: bool = True


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
            hides = self._asynchronous and self._scheduler.hides
            if not pending and not self._scheduler.stride:
                yield self._retrieve_beside() if hides else self._retrieve()
                continue
            while len(pending) < self._scheduler.stride and not self._ended:
                pending.append(self._speculate())
            batch, pending = pending, []
            hides = hides and not self._ended
            search = self._verifier.begin([guess.query for guess in batch], beside=hides)
            if hides:
                pending.append(self._write_ahead())
            matched, found = self._verify(batch, search, *pending)
            for guess in batch[:matched]:
                yield self._confirmed(guess.start, guess.document)
            if matched < len(batch):
                wasted = (guess.seconds for guess in (*batch[matched:], *pending))
                self._statistics.wasted_s += sum(wasted)
                pending = []
                yield self._correct(batch[matched], _best(found[matched]))

    @property
    def _ended(self) -> bool:
        """Whether the answer ends before the next stride, as far as the guesses are right."""
        return bool(self._writer.finish) and len(self._writer.tokens) <= self._next

    def _first(self) -> ConfirmedStride:
        """The first stride: its query is searched, which fills the cache."""
        start = self._next
        query = self._encode(start)
        found, seconds = self._collect(self._verifier.begin([query], beside=False), 1)
        document = _best(found[0])
        started = perf_counter()
        self._write_stride(start, document)
        self._scheduler.began(seconds, perf_counter() - started)
        return self._confirmed(start, document)

    def _speculate(self) -> Guess:
        """As `_write_ahead`, with nothing beside it."""
        guess = self._write_ahead()
        self._scheduler.wrote(guess.seconds, changed=not guess.whole)
        return guess

    def _write_ahead(self) -> Guess:
        """Guess the next stride's passage and write under it."""
        started, prefills = perf_counter(), self._writer.prefills
        guess = self._guess()
        self._write_stride(guess.start, guess.document)
        whole = self._writer.prefills == prefills
        return replace(guess, seconds=perf_counter() - started, whole=whole)

    def _retrieve_beside(self) -> ConfirmedStride:
        """Search for the next stride's passage, and write under a guess until that is found to be
        wrong.

        Another passage has to be read first, which costs more than is hidden here if it turns out
        to be wrong: such a guess waits for the search.
        """
        guess = self._guess()
        search = self._verifier.begin([guess.query], beside=True)
        if number_of(guess.document) != number_of(self._writer.document):
            _, found = self._verify([guess], search)
            return self._write_found(guess.start, found[0])
        started = perf_counter()
        self._next = guess.start + self._request.stride
        for end in range(guess.start + 1, self._next + 1):
            if search.is_done and _count_right([guess], search.wait()[0]) == 0:
                break
            self._writer.write(guess.document, guess.start, end)
        record_writing(self._writer, self._statistics)
        whole = len(self._writer.tokens) >= self._next
        guess = replace(guess, seconds=perf_counter() - started, whole=whole)
        matched, found = self._verify([guess], search, guess)
        if matched:
            return self._confirmed(guess.start, guess.document)
        self._statistics.wasted_s += guess.seconds
        return self._correct(guess, _best(found[0]))

    def _retrieve(self) -> ConfirmedStride:
        """Search for the next stride's passage, then write, as RaLMSeq does.

        If guesses could pay, one is compared with what is found, which tells the accuracy.
        """
        start = self._next
        guess = self._guess() if self._scheduler.guesses else None
        query = guess.query if guess is not None else self._encode(start)
        found, search_s = self._collect(
            self._verifier.search([query], prefetches=guess is not None), 1
        )
        right = None if guess is None else bool(_count_right([guess], found))
        if right is not None:
            self._statistics.right += right
            self._statistics.guesses += 1
        self._scheduler.retrieved(search_s, right)
        return self._write_found(start, found[0])

    def _write_found(self, start: int, ranked: Sequence[ScoredPassage]) -> ConfirmedStride:
        """Write the next stride under the best passage."""
        started, prefills = perf_counter(), self._writer.prefills
        self._write_stride(start, _best(ranked))
        self._scheduler.wrote(perf_counter() - started, changed=self._writer.prefills > prefills)
        return self._confirmed(start, _best(ranked))

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
        self, batch: Sequence[Guess], search: Search, beside: Guess | None = None
    ) -> tuple[int, Found]:
        """How many guesses of `batch` were right before the first wrong one, and what was found.

        Args:
            beside: the stride that was written during the search.
        """
        found, seconds = self._collect(search, len(batch))
        hidden = None
        if beside is not None:
            hidden = HiddenStride(beside.seconds, perf_counter() - search.began, beside.whole)
        matched = _count_right(batch, found)
        statistics = self._statistics
        statistics.batches += 1
        statistics.stride_sum += len(batch)
        statistics.right += matched
        statistics.guesses += min(matched + 1, len(batch))
        self._scheduler.verified(Verification(len(batch), matched, seconds, hidden))
        return matched, found

    def _collect(self, search: Search, queries: int) -> tuple[Found, float]:
        """Wait for a search, count it and put what it found into the cache."""
        found, seconds = search.wait()
        for ranked in found:
            self._cache.insert(ranked)
        statistics = self._statistics
        statistics.searches += 1
        statistics.queries += queries
        statistics.search_s += seconds
        statistics.waited_s += search.waited
        return found, seconds

    def _correct(self, guess: Guess, document: Passage | None) -> ConfirmedStride:
        """Take back what was written under a wrong guess and behind it, and write it anew."""
        self._statistics.rollbacks += 1
        self._statistics.discarded += len(self._writer.tokens) - guess.start
        started = perf_counter()
        self._writer.rewind(guess.start)
        self._write_stride(guess.start, document)
        self._scheduler.wrote(perf_counter() - started, changed=True)
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


def _best(ranked: Sequence[ScoredPassage]) -> Passage | None:
    return ranked[0].passage if ranked else None


def _count_right(batch: Sequence[Guess], found: Found) -> int:
    """How many guesses are right before the first wrong one."""
    best = (number_of(_best(ranked)) for ranked in found)
    pairs = enumerate(zip(batch, best, strict=True))
    wrong = (at for at, (guess, true) in pairs if number_of(guess.document) != true)
    return next(wrong, len(batch))
