"""RaLMSpec for KNN-LM: tokens drawn with cached neighbours and verified in batches; the same text.

The nearest states to the next token's are mostly those that follow the nearest ones to this
token's. So the cache holds the nearest entries to the last tokens (more than k if k is small) and
the 10 entries after each, and tokens are drawn with the neighbours found in it. A batched search
then finds the true neighbours of all those states, and each token is drawn again from its true
distribution with its own noise. At the first difference the true token replaces the drawn one, and
later tokens are discarded. Verification compares tokens, not neighbours (RaLMSpec, section 5.3): a
cache that misses some neighbours is correct as long as it draws the same token. Where not even
correct guesses would pay, each pass is searched first.

The scheduler's stride counts tokens here, and a guess's lookup includes drawing its token again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from datastores.dense.flat_keys import Rows, StateMatches
from engines.ralm.events import RalmStatistics
from engines.ralm.knn_lm import (
    DrawnRow,
    InterpolatedTarget,
    Interpolation,
    StateDatastore,
    StateIndex,
)
from engines.ralm.scheduler import StrideScheduler, Verification
from engines.ralm.sequential import record_writing
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.step import Step, Timings

FOLLOWING = 10
"""Number of entries cached after each retrieved one: n of the paper."""
CACHED = 64
"""Number of nearest entries to a token that are cached with their followers. At k = 1 the cache
predicts .979 of 1,270 tokens (.912 with 1 entry, .944 with 16); at k = 1024, as many as with all
entries, since the others weigh next to nothing."""
PRIOR_ACCURACY = 0.95
"""For the scheduler: expected accuracy of a drawn token before any was verified. Answers are short,
so the first batches count: at r = 12 a prior of .6 was 0, 4 and 7 % slower at k = 1, 16 and 256."""
MAX_RETRIEVALS = 16
"""Number of latest tokens whose neighbours stay cached: more than followers reach."""


class NeighbourCache:
    """The nearest entries to the last tokens, and their followers."""

    def __init__(self, datastore: StateDatastore) -> None:
        self._datastore = datastore
        self._retrieved: deque[Rows] = deque(maxlen=MAX_RETRIEVALS)
        self.index: StateIndex = datastore.subset(np.zeros(0, np.int64))

    def insert(self, found: Sequence[StateMatches]) -> None:
        """Add the neighbours of further tokens, in order."""
        for matches in found[-MAX_RETRIEVALS:]:
            near = matches.rows[:CACHED]
            followers = self._datastore.following(near, FOLLOWING)
            self._retrieved.append(np.concatenate([near, followers]))
        self.index = self._datastore.subset(np.unique(np.concatenate(self._retrieved)))


class SpeculativeKnn:
    """Writes one answer.

    Args:
        writer: a writer over `target`.
    """

    def __init__(
        self,
        writer: StrideWriter,
        target: InterpolatedTarget,
        datastore: StateDatastore,
        interpolation: Interpolation,
        request: RalmRequest,
        scheduler: StrideScheduler,
        statistics: RalmStatistics,
    ) -> None:
        self._writer = writer
        self._target = target
        self._datastore = datastore
        self._interpolation = interpolation
        self._request = request
        self._scheduler = scheduler
        self._statistics = statistics
        self._cache = NeighbourCache(datastore)
        self._prompt = list(request.prompt(None))
        self._restarts: dict[int, float] = {}  # position in the context → seconds of the pass
        self._searched_first_s = 0.0
        self._guessing_s = 0.0  # searches of the cache since the last verification

    def write(self) -> Generator[Step]:
        """Answer the request.

        Raises:
            ContextOverflowError: the prompt does not fit into the context.
        """
        writer, confirmed = self._writer, 0
        self._scheduler.begin()
        try:
            while not writer.finish:
                if self._scheduler.choice.guesses:
                    self._speculate(confirmed)
                    self._verify(confirmed)
                else:
                    self._search_first()
                confirmed = len(writer.tokens)
                self._record()
                yield from map(self._as_pass, writer.confirm(confirmed))
        finally:
            writer.close()

    def _speculate(self, confirmed: int) -> None:
        """Draw a stride of tokens with cached neighbours, or one token while the cache is empty."""
        self._target.index = self._cache.index
        stride = max(1, self._scheduler.choice.stride) if len(self._cache.index) else 1
        tokens = self._writer.tokens
        while len(tokens) < confirmed + stride and not self._writer.finish:
            started, written, looked_s = perf_counter(), len(tokens), self._target.search_s
            self._write_token()
            lookup_s = self._target.search_s - looked_s
            self._guessing_s += lookup_s
            self._count_written(len(tokens) - written, perf_counter() - started - lookup_s)

    def _search_first(self) -> None:
        """Run one pass with the true neighbours."""
        target, statistics, written = self._target, self._statistics, len(self._writer.tokens)
        target.index = self._datastore
        searches, queries, searched_s = target.searches, target.queries, target.search_s
        started = perf_counter()
        self._write_token()
        search_s = target.search_s - searched_s
        seconds = perf_counter() - started - search_s
        target.record_drawn(self._writer.tokens[written:])
        statistics.searches += target.searches - searches
        statistics.queries += target.queries - queries
        statistics.search_s = statistics.waited_s = statistics.search_s + search_s
        self._searched_first_s += search_s
        self._count_written(len(self._writer.tokens) - written, seconds)
        self._scheduler.verified(Verification(target.queries - queries, 0, search_s))

    def _write_token(self) -> None:
        """Write one token, or more if drafted ones are accepted."""
        written, prefills, started = len(self._writer.tokens), self._writer.prefills, perf_counter()
        self._writer.write(None, written, written + 1)
        if self._writer.prefills > prefills and written:
            self._restarts[len(self._prompt) + written] = perf_counter() - started

    def _count_written(self, tokens: int, seconds: float) -> None:
        for _ in range(tokens):
            self._scheduler.wrote(seconds / tokens, new=False)

    def _verify(self, confirmed: int) -> None:
        """Verify all tokens after the first `confirmed`; correct the first wrong one."""
        drawn = self._target.take_drawn()
        if not drawn:
            return
        started = perf_counter()
        keys = np.stack([row.key for row in drawn])
        found = self._datastore.search(keys, max(self._interpolation.neighbours, CACHED))
        seconds = perf_counter() - started
        true = self._draw_again(confirmed, drawn, found)
        lookup_s = (self._guessing_s + perf_counter() - started - seconds) / len(drawn)
        self._guessing_s = 0.0
        tokens = self._writer.tokens
        matched = len(true) - (true[-1] != tokens[confirmed + len(true) - 1])
        self._cache.insert(found[: len(true)])
        statistics = self._statistics
        statistics.searches += 1
        statistics.queries += len(drawn)
        statistics.search_s = statistics.waited_s = statistics.search_s + seconds
        statistics.batches += 1
        statistics.stride_sum += len(drawn)
        statistics.right += matched
        statistics.guesses += len(true)
        if matched < len(true):
            statistics.rollbacks += 1
            statistics.discarded += len(tokens) - confirmed - matched
            self._writer.correct(confirmed + matched, true[-1])
            # The row was right, so the true token needs no pass of its own.
            self._scheduler.wrote(0.0, new=True)
        new = [False] * len(drawn)
        self._scheduler.verified(Verification(len(drawn), matched, seconds, new, lookup_s=lookup_s))

    def _draw_again(
        self, confirmed: int, drawn: Sequence[DrawnRow], found: Sequence[StateMatches]
    ) -> list[int]:
        """The true tokens, up to and including the first that differs."""
        started = perf_counter()
        tokens, true = self._writer.tokens, list[int]()
        context = [*self._prompt, *tokens[:confirmed]]
        for at, (row, matches) in enumerate(zip(drawn, found, strict=True), confirmed):
            nearest = matches.nearest(self._interpolation.neighbours)
            mixed = self._interpolation.apply(row.logits, nearest)
            true.append(self._request.draw(row.logits, at, context))
            self._target.contributions.add(mixed, true[-1])
            context.append(true[-1])
            if true[-1] != tokens[at]:
                break
        self._statistics.encoding_s += perf_counter() - started
        return true

    def _record(self) -> None:
        statistics, target = self._statistics, self._target
        record_writing(self._writer, statistics)
        statistics.generation_s -= target.search_s + target.encoding_s
        statistics.lookup_s = target.search_s + target.encoding_s - self._searched_first_s
        statistics.strides = len(self._writer.tokens)

    def _as_pass(self, step: Step) -> Step:
        """Turn the prefill step of a restarted decode loop into a forward pass, which it was."""
        seconds = self._restarts.get(step.position)
        if not step.prefill or seconds is None:
            return step
        return replace(step, prefill=False, timings=Timings(seconds, 0.0, seconds))
