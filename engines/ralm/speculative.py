"""RaLMSpec: strides written under guessed passages and verified in batches; the text is RaLMSeq's.

Algorithm 1 of the paper, with its three accelerations, each of them optional:

- prefetching (P): a verification puts the best `prefetch` passages of each query into the cache;
- the stride scheduler (S): chooses how many strides are written before their queries are verified,
  or to search before each;
- asynchronous verification (A): the last stride of a batch, and more, are written while the batch
  is verified; writing stops when a misprediction is found.

The stride of a batch's first misprediction is rewritten under the passage that the verification
found. A stride that is searched first ends its batch: the first stride of all, every one where
guesses do not pay, and one whose guessed passage would need prefill at too high a risk. Only
confirmed strides are yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from datastores.passages.chunks import Passage
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import NO_MATCH, KnowledgeBase, Query
from engines.ralm.scheduler import StrideScheduler, Verification
from engines.ralm.sequential import encode, record_writing
from engines.ralm.stride_rates import MAX_AHEAD
from engines.ralm.stride_writer import RalmRequest, StrideWriter, passage_id
from engines.ralm.verification import Found, Search, Verifier
from engines.retrieval.protocol import ScoredPassage

PREFETCH, PREFETCH_FAR = 20, 256
"""Passages per query (section 5.1), and the larger number that the paper compares it with."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The next stride's query, and the passage that the cache predicts for it.

    Attributes:
        start: index of the stride's first token in the answer.
        made: whether the cache was asked.
        new: whether the passage needs prefill.
        speculated: whether the stride is written under the guess instead of being searched first.
        lookup_s: seconds of the lookup.
        seconds: time to write the stride; 0 before.
    """

    start: int
    query: Query
    passage: Passage | None
    made: bool
    new: bool
    speculated: bool
    lookup_s: float
    seconds: float = 0.0


class SpeculativeCache:
    """Passages retrieved for an answer, from which the next one is guessed.

    Passages retrieved for one query are often the best for the next one. The cache ranks with the
    metric of the knowledge base, so if it holds the best passage of all, it ranks that one first
    (section 3 and figure 2).
    """

    def __init__(self, base: KnowledgeBase) -> None:
        self._base = base
        self._passages: dict[int, Passage] = {}

    def __len__(self) -> int:
        return len(self._passages)

    def insert(self, found: Iterable[ScoredPassage]) -> None:
        """Add passages that the knowledge base returned."""
        for scored in found:
            self._passages[scored.passage.id] = scored.passage

    def guess(self, query: Query) -> Passage | None:
        """The best cached passage for `query`, ties by id; None if none matches."""
        held = list(self._passages.values())
        scores = self._base.score(query, held) if held else ()
        ranked = ((-score, one.id) for score, one in zip(scores, held, strict=True))
        loss, best = min(ranked, default=(-NO_MATCH, 0))
        return self._passages[best] if loss < -NO_MATCH else None


class SpeculativeRalm:
    """Writes one answer.

    Args:
        prefetch: passages of each verified query to put into the cache; 1 for no prefetching.
        asynchronous: verify on another thread.
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
        self._next = len(request.written)  # start of the stride after the last written one
        self._previous: int | None = None

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
        batch: list[Guess] = []  # written but not yet verified
        while batch or not self._ended:
            self._extend(batch)
            hides = self._hides and batch[-1].speculated and not self._ended
            queries = [guess.query for guess in batch]
            search = self._verifier.begin(
                queries, overlapped=hides, prefetches=self._scheduler.choice.guesses
            )
            start = self._next
            ahead = self._write_overlapped(search, batch) if hides else []
            overlapped = (self._next - start) // self._request.stride
            settled, found = self._verify(search, batch, ahead, overlapped)
            for guess in batch[:settled]:
                yield self._confirmed(guess.start, guess.passage)
            if settled < len(batch):
                dropped = (
                    guess.seconds for guess in (*batch[settled:], *ahead) if guess.speculated
                )
                self._statistics.wasted_s += sum(dropped)
                ahead = []
                yield self._write_found(batch[settled], _best(found[settled]))
            batch = ahead

    @property
    def _hides(self) -> bool:
        return self._asynchronous and self._scheduler.choice.hides

    @property
    def _ended(self) -> bool:
        """Whether the answer ends before the next stride, if the guesses are correct."""
        return bool(self._writer.finish) and len(self._writer.tokens) <= self._next

    def _extend(self, batch: list[Guess]) -> None:
        """Guess and write the next strides of a batch; not the last, if it is searched first or
        written during the search."""
        while not self._ended:
            batch.append(self._guess())
            full = len(batch) >= self._scheduler.choice.stride
            if not batch[-1].speculated or (full and self._hides):
                return
            batch[-1] = self._write_guess(batch[-1])
            self._time(batch[-1].seconds, new=batch[-1].new)
            if full:
                return

    def _write_overlapped(self, search: Search, batch: list[Guess]) -> list[Guess]:
        """Write the last stride of `batch` and further ones until its search is done.

        Stops at once when a misprediction is found.

        Returns:
            The further strides.
        """

        def is_refuted() -> bool:
            return search.is_done and _count_right(batch, search.wait()[0]) < len(batch)

        if batch[-1].start == self._next:
            batch[-1] = self._write_guess(batch[-1], is_refuted)
        ahead: list[Guess] = []
        while len(ahead) < MAX_AHEAD and not (search.is_done or self._ended):
            guess = self._guess()
            if not guess.speculated:
                break
            ahead.append(self._write_guess(guess, is_refuted))
        return ahead

    def _guess(self) -> Guess:
        """Encode the next stride's query, and look it up in the cache if guesses are made."""
        start, choice, passage, lookup_s = self._next, self._scheduler.choice, None, 0.0
        query = encode(self._base, self._request, self._writer, start, self._statistics)
        made = choice.guesses and len(self._cache) > 0
        if made:
            started = perf_counter()
            passage = self._cache.guess(query)
            lookup_s = perf_counter() - started
            self._statistics.lookup_s += lookup_s
        new = made and not self._writer.has_read(passage)
        speculated = made and choice.stride > 0 and (choice.reads_ahead or not new)
        return Guess(start, query, passage, made, new, speculated, lookup_s)

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
        self, search: Search, batch: Sequence[Guess], ahead: Sequence[Guess], overlapped: int
    ) -> tuple[int, Found]:
        """The number of written strides of `batch` that are correct, and the passages found.

        Args:
            overlapped: number of strides written during the search.
        """
        found, seconds = search.wait()
        for ranked in found:
            self._cache.insert(ranked)
        right = _count_right(batch, found)
        self._record(search, batch, right)
        stride_s = None
        clean = right == len(batch) and not any(guess.new for guess in (batch[-1], *ahead))
        if overlapped and clean:
            stride_s = (perf_counter() - search.began) / overlapped
        new = [guess.new for guess in batch if guess.made]
        lookup_s = sum(guess.lookup_s for guess in batch) / len(batch)
        self._scheduler.verified(
            Verification(len(batch), right, seconds, new, bool(overlapped), stride_s, lookup_s)
        )
        return min(right, sum(guess.speculated for guess in batch)), found

    def _record(self, search: Search, batch: Sequence[Guess], right: int) -> None:
        """Count a search for `batch`, of which the first `right` guesses are correct."""
        statistics, guesses = self._statistics, sum(guess.made for guess in batch)
        statistics.waited_s += search.waited
        statistics.right += min(right, guesses)
        statistics.guesses += min(right + 1, guesses)
        written = sum(guess.speculated for guess in batch)
        statistics.batches += written > 0
        statistics.stride_sum += written

    def _write_found(self, guess: Guess, passage: Passage | None) -> ConfirmedStride:
        """Write a stride under its true passage, and discard what was written from there on."""
        writer, start = self._writer, guess.start
        if start < self._next:
            self._statistics.rollbacks += 1
            self._statistics.discarded += len(writer.tokens) - start
            writer.rewind(start)
        started = perf_counter()
        new = not writer.has_read(passage)
        self._next = start + self._request.stride
        writer.write(passage, start, self._next)
        record_writing(writer, self._statistics)
        self._time(perf_counter() - started, new=new)
        return self._confirmed(start, passage)

    def _time(self, seconds: float, *, new: bool) -> None:
        """Tell the scheduler what the last stride took, unless the answer ended within it."""
        if len(self._writer.tokens) >= self._next:
            self._scheduler.wrote(seconds, new=new)

    def _confirmed(self, start: int, passage: Passage | None) -> ConfirmedStride:
        """Hand out the stride that begins at `start`, written under its true passage."""
        end, statistics, verifier = start + self._request.stride, self._statistics, self._verifier
        statistics.searches, statistics.queries = verifier.searches, verifier.queries
        statistics.search_s = verifier.seconds
        statistics.strides += 1
        statistics.changes += bool(start) and passage_id(passage) != self._previous
        self._previous = passage_id(passage)
        last = self._ended and end == self._next
        steps = tuple(self._writer.confirm(end))
        return ConfirmedStride(passage, steps, self._writer.finish if last else "")


def _best(ranked: Sequence[ScoredPassage]) -> Passage | None:
    return ranked[0].passage if ranked else None


def _count_right(batch: Sequence[Guess], found: Found) -> int:
    """The number of guesses before the first wrong one."""
    best = (passage_id(_best(ranked)) for ranked in found)
    pairs = enumerate(zip(batch, best, strict=False))
    wrong = (at for at, (guess, true) in pairs if passage_id(guess.passage) != true)
    return next(wrong, len(batch))
