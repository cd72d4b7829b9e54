"""RaLMSpec: strides written under guessed passages, verified in batches, and the same text.

Algorithm 1 of the paper, with its three accelerations, each of which may be off:

- prefetching (P): a verification puts the best `prefetch` passages of each query into the cache;
- the stride scheduler (S): how many strides are written before their queries are verified, none
  where it is better to search first;
- asynchronous verification (A): the last stride of a batch, and more, are written while the batch
  is verified; writing stops when a guess is found to be wrong.

The stride before which a batch's first wrong guess was made is written again under the passage that
the verification found, so it needs none itself. So is a stride that is searched for first, which is
the last of its batch: the first stride of all, every one where guesses do not pay, and one whose
guessed passage would have to be read at too great a risk. Only confirmed strides are yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from datastores.passages.chunks import Passage
from engines.ralm.cache import SpeculativeCache
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase, Query
from engines.ralm.scheduler import StrideScheduler, Verification
from engines.ralm.sequential import encode, record_writing
from engines.ralm.stride_rates import MAX_AHEAD
from engines.ralm.stride_writer import RalmRequest, StrideWriter, number_of
from engines.ralm.verification import Found, Search, Verifier
from engines.retrieval.protocol import ScoredPassage

PREFETCH, PREFETCH_FAR = 20, 256
"""Passages for each query (section 5.1), and the larger number that the paper compares it with."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The passage that the cache has for a stride; `start` is its first token in the answer.

    Attributes:
        made: whether the cache was asked at all.
        new: whether the passage would have to be read.
        goes_on: whether the stride is written under the guess; else it is searched for first.
        lookup_s: seconds that asking it took.
        seconds: the stride took to write; 0 before.
    """

    start: int
    query: Query
    passage: Passage | None
    made: bool
    new: bool
    goes_on: bool
    lookup_s: float
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
        self._next = len(request.written)  # where the stride behind the last written one starts
        self._before: int | None = None

    def write(self) -> Generator[ConfirmedStride]:
        """Answer the request.

        Raises:
            ContextOverflowError: the first prompt does not fit into the context.
            SpecchatError: the knowledge base cannot be read.
        """
        try:
            self._scheduler.begin()
            with self._verifier:
                yield from self._write()
        finally:
            self._writer.close()

    def _write(self) -> Generator[ConfirmedStride]:
        batch: list[Guess] = []  # written, and not searched for yet
        while batch or not self._ended:
            self._extend(batch)
            hides = self._hides and batch[-1].goes_on and not self._ended
            queries = [guess.query for guess in batch]
            search = self._verifier.begin(queries, beside=hides, prefetches=self._scheduler.guesses)
            before = self._next
            ahead = self._write_beside(search, batch) if hides else []
            beside = (self._next - before) // self._request.stride
            settled, found = self._verify(search, batch, ahead, beside)
            for guess in batch[:settled]:
                yield self._confirmed(guess.start, guess.passage)
            if settled < len(batch):
                dropped = (guess.seconds for guess in (*batch[settled:], *ahead) if guess.goes_on)
                self._statistics.wasted_s += sum(dropped)
                ahead = []
                yield self._write_found(batch[settled], _best(found[settled]))
            batch = ahead

    @property
    def _hides(self) -> bool:
        return self._asynchronous and self._scheduler.hides

    @property
    def _ended(self) -> bool:
        """Whether the answer ends before the next stride, as far as the guesses are right."""
        return bool(self._writer.finish) and len(self._writer.tokens) <= self._next

    def _extend(self, batch: list[Guess]) -> None:
        """Guess the next strides and write them: all but the last, if that is searched for first
        or written during the search."""
        while not self._ended:
            batch.append(self._guess())
            full = len(batch) >= self._scheduler.stride
            if not batch[-1].goes_on or (full and self._hides):
                return
            started = perf_counter()
            batch[-1] = self._write_guess(batch[-1])
            self._time(started, batch[-1].seconds, new=batch[-1].new)
            if full:
                return

    def _write_beside(self, search: Search, batch: list[Guess]) -> list[Guess]:
        """Write until the search is done: the last guess of its batch, and those that are returned.

        Stops at the token at which a guess is found to be wrong.
        """

        def is_refuted() -> bool:
            return search.is_done and _count_right(batch, search.wait()[0]) < len(batch)

        if batch[-1].start == self._next:
            batch[-1] = self._write_guess(batch[-1], is_refuted)
        ahead: list[Guess] = []
        while len(ahead) < MAX_AHEAD and not (search.is_done or self._ended):
            guess = self._guess()
            if not guess.goes_on:
                break
            ahead.append(self._write_guess(guess, is_refuted))
        return ahead

    def _guess(self) -> Guess:
        """The next stride's query and what the cache says to it, if guesses could pay."""
        start, scheduler, passage, lookup_s = self._next, self._scheduler, None, 0.0
        query = encode(self._base, self._request, self._writer, start, self._statistics)
        made = scheduler.guesses and len(self._cache) > 0
        if made:
            looking = perf_counter()
            passage = self._cache.guess(query)
            lookup_s = perf_counter() - looking
            self._statistics.lookup_s += lookup_s
        new = made and not self._writer.has_read(passage)
        goes_on = made and scheduler.stride > 0 and (scheduler.reads_ahead or not new)
        return Guess(start, query, passage, made, new, goes_on, lookup_s)

    def _write_guess(self, guess: Guess, is_refuted: Callable[[], bool] = lambda: False) -> Guess:
        """Write the next stride under its guess."""
        started = perf_counter()
        self._next = guess.start + self._request.stride
        for end in range(guess.start + 1, self._next + 1):
            if is_refuted():
                break
            self._writer.write(guess.passage, guess.start, end)
        record_writing(self._writer, self._statistics)
        return replace(guess, seconds=perf_counter() - started)

    def _verify(
        self, search: Search, batch: Sequence[Guess], ahead: Sequence[Guess], beside: int
    ) -> tuple[int, Found]:
        """How many strides of `batch` stand as they are written, and what was found for all.

        Args:
            beside: strides that were written during the search.
        """
        found, seconds = search.wait()
        for ranked in found:
            self._cache.insert(ranked)
        right = _count_right(batch, found)
        self._record(search, batch, right)
        stride_s = None
        alike = right == len(batch) and not any(guess.new for guess in (batch[-1], *ahead))
        if beside and alike:
            stride_s = (perf_counter() - search.began) / beside
        new = [guess.new for guess in batch if guess.made]
        lookup_s = sum(guess.lookup_s for guess in batch) / len(batch)
        self._scheduler.verified(
            Verification(len(batch), right, seconds, new, bool(beside), stride_s, lookup_s)
        )
        return min(right, sum(guess.goes_on for guess in batch)), found

    def _record(self, search: Search, batch: Sequence[Guess], right: int) -> None:
        """Count a search for `batch`, of which so many are right before the first wrong one."""
        statistics, guesses = self._statistics, sum(guess.made for guess in batch)
        statistics.waited_s += search.waited
        statistics.right += min(right, guesses)
        statistics.guesses += min(right + 1, guesses)
        written = sum(guess.goes_on for guess in batch)
        statistics.batches += written > 0
        statistics.stride_sum += written

    def _write_found(self, guess: Guess, passage: Passage | None) -> ConfirmedStride:
        """Write a stride under the passage that was found, instead of what was written under its
        guess and behind it."""
        if guess.start < self._next:
            self._statistics.rollbacks += 1
            self._statistics.discarded += len(self._writer.tokens) - guess.start
            self._writer.rewind(guess.start)
        started = perf_counter()
        new = self._write_stride(passage, guess.start)
        self._time(started, perf_counter() - started, new=new)
        return self._confirmed(guess.start, passage)

    def _write_stride(self, passage: Passage | None, start: int) -> bool:
        """Write the stride that begins at `start` under its true passage.

        Returns:
            Whether that had to be read.
        """
        new = not self._writer.has_read(passage)
        self._next = start + self._request.stride
        self._writer.write(passage, start, self._next)
        record_writing(self._writer, self._statistics)
        return new

    def _time(self, started: float, seconds: float, *, new: bool) -> None:
        """Tell the scheduler what a stride takes whose writing `started` then, unless the answer
        ended within it or a search ran beside it."""
        if len(self._writer.tokens) >= self._next and not self._verifier.ran_since(started):
            self._scheduler.wrote(seconds, new=new)

    def _confirmed(self, start: int, passage: Passage | None) -> ConfirmedStride:
        """The stride that begins at `start`, whose passage is right."""
        end, statistics, verifier = start + self._request.stride, self._statistics, self._verifier
        statistics.searches, statistics.queries = verifier.searches, verifier.queries
        statistics.search_s = verifier.seconds
        statistics.strides += 1
        statistics.changes += bool(start) and number_of(passage) != self._before
        self._before = number_of(passage)
        last = self._ended and end == self._next
        steps = tuple(self._writer.confirm(end))
        return ConfirmedStride(passage, steps, self._writer.finish if last else "")


def _best(ranked: Sequence[ScoredPassage]) -> Passage | None:
    return ranked[0].passage if ranked else None


def _count_right(batch: Sequence[Guess], found: Found) -> int:
    """How many guesses are right before the first wrong one."""
    best = (number_of(_best(ranked)) for ranked in found)
    pairs = enumerate(zip(batch, best, strict=False))
    wrong = (at for at, (guess, true) in pairs if number_of(guess.passage) != true)
    return next(wrong, len(batch))
