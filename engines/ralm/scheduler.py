"""How many strides are written before their queries are verified: a fixed number, or OS3.

OS3, the optimal speculation stride scheduler (RaLMSpec, section 4 and appendix), maximises the
expected number of verified strides per second,

    synchronous    (1 − γ^s) / (1 − γ) / (s·a + b)
    asynchronous   (1 − γ^s) / (1 − γ) / (γ^s·((s − 1)·a + max(a, b)) + (1 − γ^s)·(s·a + b))

where a is the time of a speculated stride (encoding its query included), b that of a verification,
and γ the probability that a guess is correct. What differs from the paper:

- The paper's γ is one number, capped at γ_max = 0.6, so that s hardly exceeds 5. Here γ depends on
  the number of correct guesses in a row (`Runs`), since errors come in bursts: of 2,400 guesses,
  .20 to .40 are wrong after none, .04 to .13 after one, .01 to .04 after sixteen. The expected
  number of verified strides is a sum of run probabilities.
- b is linear in s: a batch costs less than single queries, but on few cores it is not free.
- A passage that is not in the KV cache needs prefill, which makes its stride take c instead of a:
  ten times as long with a small model on a CPU. A misprediction costs c if the true passage needs
  prefill, and again if the guessed one did. So a passage is prefilled on a guess (`reads_ahead`)
  only while 2·(1 − p)·c < b, where p is the probability that the guess is correct. Otherwise such a
  stride is searched first, and γ is the probability that a stride is speculated and correct.
- A guess takes a cache lookup, which may take as long as a search of few passages.
- s = 0 means to search first, as RaLMSeq does, in a + b. It is kept unless guesses promise
  `MIN_GAIN`; where not even perfect guesses would, none are made. (Prefill of a true passage costs
  both the same and is left out.)
- An overlapped search begins before the last stride of its batch is written, and strides are
  written until it ends, not one. So a correct guess costs the longer of writing and searching. The
  two share cores and memory, so the actual cost is measured; until then `PRIOR_OVERLAP` is assumed.
- Estimates carry over between answers. The very first stride, prompt included, measures b and c
  before any guess, so that the first batch has a good size. The first search of a later answer is
  ignored: after a prefill it takes up to three times as long as between strides.
- One stride of each answer is written without a search. Otherwise, while searches are overlapped,
  a would be measured on mispredictions alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple, Protocol

import numpy as np

from engines.ralm.guess_accuracy import PRIOR_ACCURACY, Runs, SuccessRate
from engines.ralm.stride_rates import (
    MAX_STRIDE,
    Chances,
    StrideCosts,
    batch_rates,
    hidden_rate,
    hidden_stride_s,
    sequential_rate,
)

WINDOW = 5
"""Number of recent verifications whose times are averaged (section 5.1)."""
PAPER_STRIDE = 3
"""The paper's fixed stride."""
PRIOR_NEW = 0.2
"""Expected share of guesses whose passage needs prefill, before any was made."""
PRIOR_NEW_END = 0.5
"""Expected share of those among the guesses that are wrong or need prefill."""
READING_WEIGHT = 8.0
"""`guess_accuracy.PRIOR_WEIGHT` for guesses that need prefill: higher, since few answers have more
of them, and trusting them too soon costs c, too late only b."""
RISK = 2.0
"""Search time ÷ expected loss above which such a passage is prefilled on a guess. Above 1, since
guesses deep in a batch are wrong more often, and invalidate those after them."""
STRIDE_WINDOW = 3 * WINDOW
"""Number of recent strides whose times are averaged: single ones vary widely."""
PRIOR_BATCH, PRIOR_QUERY = 4, 0.2
"""Prior of b's slope, as one batch of `PRIOR_BATCH` queries in which each query after the first
takes `PRIOR_QUERY` of a single search."""
MIN_GAIN = 1.05
"""Speed-up over searching first that guesses must promise; the estimates are no more precise."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one search.

    Attributes:
        queries: number of queries in its batch.
        matched: number of guesses before the first wrong one.
        seconds: wall time of the search.
        new: for each guess, whether its passage needed prefill; empty if there was no guess.
        hidden: whether strides were written during the search.
        stride_s: seconds per such stride, if all guesses were correct and needed no prefill.
        lookup_s: mean seconds to look up a guess in the cache.
    """

    queries: int
    matched: int
    seconds: float
    new: Sequence[bool] = ()
    hidden: bool = False
    stride_s: float | None = None
    lookup_s: float = 0.0


class Choice(NamedTuple):
    """How to speculate.

    Attributes:
        stride: strides to write before their queries are verified; 0 to search before each.
        hides: whether to write during a search, if the answer is verified asynchronously.
        guesses: whether to look up guesses, if only to measure their accuracy.
        reads_ahead: whether to prefill a guessed passage before the search confirms it.
    """

    stride: int
    hides: bool = True
    guesses: bool = True
    reads_ahead: bool = True


class StrideScheduler(Protocol):
    """Chooses how to speculate, and learns from the outcome."""

    @property
    def choice(self) -> Choice:
        """The current choice."""
        ...

    def begin(self) -> None:
        """Start an answer."""
        ...

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Record the time of a stride that was written with no search running.

        Args:
            new: whether its passage needed prefill.
        """
        ...

    def verified(self, verification: Verification) -> None:
        """Record the outcome of a search."""
        ...


class FixedStride:
    """Always the same choice."""

    def __init__(self, stride: int = PAPER_STRIDE) -> None:
        self.choice = Choice(stride)

    def begin(self) -> None:
        """Nothing to forget."""

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Nothing to learn."""

    def verified(self, verification: Verification) -> None:
        """Nothing to learn."""


class OptimalStride:
    """OS3, starting with a stride of 1.

    Args:
        asynchronous: whether strides can be written while a batch is verified.
        max_stride: limit of the stride.
        prior_accuracy: expected accuracy of guesses, before any was verified.
    """

    def __init__(
        self,
        *,
        asynchronous: bool,
        max_stride: int = MAX_STRIDE,
        prior_accuracy: float = PRIOR_ACCURACY,
    ) -> None:
        self._choice = Choice(stride=1, hides=False)
        self._stale = self._timed = False
        self._unweighed = 0  # searches since the last choice
        self._begins = True
        self._max_stride = max_stride
        self._asynchronous = asynchronous
        self._strides: deque[float] = deque(maxlen=STRIDE_WINDOW)
        self._readings: deque[float] = deque(maxlen=WINDOW)
        self._hidden: deque[float] = deque(maxlen=STRIDE_WINDOW)  # seconds during a search
        self._lookups: deque[float] = deque(maxlen=WINDOW)
        self._single: deque[float] = deque(maxlen=WINDOW)  # seconds of single-query searches
        self._batches: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # (queries, seconds)
        self._right = SuccessRate(prior_accuracy)
        self._right_of_new = SuccessRate(PRIOR_ACCURACY, READING_WEIGHT)
        self._runs = Runs(prior_accuracy)
        self._runs_read = Runs(prior_accuracy * (1 - PRIOR_NEW))
        self._new = SuccessRate(PRIOR_NEW)
        self._new_of_ends = SuccessRate(PRIOR_NEW_END)

    @property
    def accuracy(self) -> float:
        """γ."""
        return self._right.estimate

    @property
    def choice(self) -> Choice:
        """The choice by the latest estimates.

        Computed on demand as it takes 0.1 ms, and only every `WINDOW` searches where they are so
        short that no guesses are made. Nothing is hidden before a stride of this answer was written
        without a search.
        """
        if self._stale and (self._choice.guesses or self._unweighed >= WINDOW):
            self._choice, self._stale, self._unweighed = self._choose(), False, 0
        return self._choice if self._timed else self._choice._replace(hides=False)

    def begin(self) -> None:
        """See `StrideScheduler.begin`; estimates carry over."""
        self._begins, self._timed = True, False
        self._runs.begin()
        self._runs_read.begin()
        if self._single and (self._strides or self._readings):
            self._stale = True

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Update a or c, and the choice unless guesses are pending."""
        (self._readings if new else self._strides).append(seconds)
        self._timed = self._timed or not new
        waits = not self._choice.stride or not self._right.count
        if self._single and waits:
            self._stale = True

    def verified(self, verification: Verification) -> None:
        """Update b, the cost of overlap, the accuracy and the choice."""
        self._unweighed += 1
        self._compare(verification)
        if verification.new:
            self._lookups.append(verification.lookup_s)
        if verification.stride_s is not None:
            self._hidden.append(verification.stride_s)
        if not verification.hidden:
            if verification.queries > 1:
                self._batches.append((verification.queries, verification.seconds))
            elif not (self._begins and self._single):
                self._single.append(verification.seconds)
        self._begins = False
        if self._strides or self._readings:
            self._stale = True

    def _compare(self, verification: Verification) -> None:
        """Record the guesses up to the first wrong one."""
        compared = verification.new[: verification.matched + 1]
        right = [at < verification.matched for at in range(len(compared))]
        pairs = list(zip(right, compared, strict=True))
        self._right.add(right)
        self._right_of_new.add([one for one, new in pairs if new])
        self._runs.add(right)
        self._runs_read.add([one and not new for one, new in pairs])
        self._new.add(compared)
        self._new_of_ends.add([new for one, new in pairs if new or not one])

    def _choose(self) -> Choice:
        """The best choice by the current estimates."""
        base_s, query_s = self._verification_line()
        stride_s = _typical(self._strides or self._readings)
        costs = StrideCosts(stride_s, base_s, query_s, median(self._readings or [stride_s]))
        unsure = 1 - self._right_of_new.estimate
        reads_ahead = unsure * costs.reading_s * RISK < costs.verification_s(1)
        longest = self._max_stride
        if self._best(Chances(np.ones(longest + 1), 0.0, 0.0), costs)[0] < MIN_GAIN:
            return Choice(0, hides=False, guesses=False, reads_ahead=reads_ahead)
        if reads_ahead:
            chances = Chances(self._runs.chances(longest), self._new.estimate, 0.0)
        else:
            chances = Chances(self._runs_read.chances(longest), 0.0, self._new_of_ends.estimate)
        gain, stride, hides = self._best(chances, costs)
        if gain < MIN_GAIN:
            stride, hides = 0, False
        return Choice(stride, hides, reads_ahead=reads_ahead)

    def _best(self, chances: Chances, costs: StrideCosts) -> tuple[float, int, bool]:
        """The best speed-up over searching first, its stride (of equals the shortest), and whether
        to write during its search."""
        sequential_s = 1 / sequential_rate(costs)
        lookup_s = median(self._lookups or [0.0])
        rates = batch_rates(chances, costs.with_lookup(lookup_s))
        at = int(rates.argmax())
        found = (float(rates[at]) * sequential_s, at + 1, False)
        # How much can be hidden is unknown until a stride was written without a search.
        if self._asynchronous and self._strides:
            rate = hidden_rate(chances, costs, self._hidden_s(costs) + lookup_s)
            found = max(found, (rate * sequential_s, 1, True))
        return found

    def _hidden_s(self, costs: StrideCosts) -> float:
        """Seconds per stride written during a search."""
        return _typical(self._hidden) if self._hidden else hidden_stride_s(costs)

    def _verification_line(self) -> tuple[float, float]:
        """b as (seconds per batch, seconds per query), neither below 0.

        Least squares over the searches that were not overlapped and the prior; a constant while all
        of them have one size.
        """
        searches = [*((1, seconds) for seconds in self._single), *self._batches]
        if self._single:
            more = PRIOR_QUERY * (PRIOR_BATCH - 1)
            searches.append((PRIOR_BATCH, median(self._single) * (1 + more)))
        sizes = np.array([queries for queries, _ in searches], float)
        seconds = np.array([taken for _, taken in searches])
        spread = sizes - sizes.mean()
        if not spread.any():
            return float(seconds.mean()), 0.0
        slope = max(float(spread @ seconds / (spread @ spread)), 0.0)
        base = float(seconds.mean()) - slope * float(sizes.mean())
        if base < 0.0:
            return 0.0, float(sizes @ seconds / (sizes @ sizes))
        return base, slope


def _typical(seconds: Sequence[float]) -> float:
    """The mean without the slowest tenth.

    Not the median: one pass may write several strides, all but the first of which take no time.
    """
    return fmean(sorted(seconds)[: len(seconds) - len(seconds) // 10])
