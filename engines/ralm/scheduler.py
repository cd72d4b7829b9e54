"""How many strides are written ahead before their queries are verified: a fixed number, or OS3.

OS3, the optimal speculation stride scheduler (RaLMSpec, section 4 and appendix), maximises the
expected number of verified strides per second,

    synchronous    (1 − γ^s) / (1 − γ) / (s·a + b)
    asynchronous   (1 − γ^s) / (1 − γ) / (γ^s·((s − 1)·a + max(a, b)) + (1 − γ^s)·(s·a + b))

where a is the time of a speculative stride (encoding its query included), b that of a
verification, and γ the probability that a guess is right. a and b are estimated over the last
verifications. What differs from the paper:

- Its γ is one number, cut off at γ_max = 0.6, which never lets s exceed 5 or so. Here, γ depends on
  how many guesses were right in a row before (`Runs`): wrong ones come in bursts, and after a long
  run hardly any does. Of 2,400 guesses, the next one is wrong in .20 to .40 after none, .04 to .13
  after one, .01 to .04 after sixteen. So the expected number of verified strides is the sum of the
  chances of runs, in place of (1 − γ^s) / (1 − γ).
- b is a line over s: a batch costs less than single queries, but on few cores it is not free.
- A passage that is not in the KV cache has to be read, which takes c seconds where a stride under
  the same one takes a: ten times as long with a small model on a CPU. So a wrong guess costs c if
  the true passage is another, and once more if the guessed one was. `reads_ahead` tells whether
  that is risked: if a guess is wrong with probability 1 − p, only while 2·(1 − p)·c < b. Else the
  search comes first for such a guess, and γ is the probability that one is gone on with and right.
- To guess takes a lookup in the cache, which may take as long as a search of few passages. Where
  nothing is guessed, that is saved.
- A stride of 0 has a rate, too: search first, as RaLMSeq does, in a + b. (A true passage that has
  to be read costs both the same, so it is left out.) Where searching is cheap or guesses are wrong,
  that is the best there is, and it is kept unless a guess promises `MIN_GAIN`; where not even right
  guesses could promise it, nothing is guessed at all.
- A hidden search begins before the last stride of its batch is written, and strides are written
  until it ends, not one. So a right guess costs the longer of writing and searching. What it really
  costs, since both share cores and memory, is measured; before, `PRIOR_OVERLAP` is assumed.
- What one answer tells of times and runs, the next one begins with. The very first stride, prompt
  included, tells b and c before anything was guessed: so the first batch is as large as pays, and
  none where searching is cheap. Later answers begin with a search too, but after a prompt was read,
  when it takes up to three times as long as between strides: that is left out.
- One stride of each answer is written with no search beside it. Else a would be known from wrong
  guesses alone while searches are hidden, and what hiding costs would be compared with too much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple, Protocol

import numpy as np

from engines.ralm.guess_accuracy import PRIOR_ACCURACY, Runs, Share
from engines.ralm.stride_rates import (
    MAX_STRIDE,
    Chances,
    StrideCosts,
    batch_rates,
    best_stride,
    hidden_rate,
    hidden_stride_s,
    sequential_rate,
)

WINDOW = 5
"""Verifications whose times are looked at (section 5.1)."""
PAPER_STRIDE = 3
"""The paper's fixed stride."""
PRIOR_NEW = 0.2
"""Share of guesses that have to be read, before any was made."""
PRIOR_NEW_END = 0.5
"""Share of those among the guesses that are not both right and read."""
READING_WEIGHT = 8.0
"""As `guess_accuracy.PRIOR_WEIGHT`, for guesses that have to be read: few answers have more, and to
trust them too soon costs c, to trust them too late b."""
RISK = 2.0
"""Times the expected loss that a search has to take before such a passage is read ahead: a guess
deep in a batch is wrong more often, and so is all behind it."""
STRIDE_WINDOW = 3 * WINDOW
"""Strides whose times are looked at, alone or beside a search: single ones differ much."""
PRIOR_BATCH, PRIOR_QUERY = 4, 0.2
"""What is known of batches before one was searched for, as if it were one of that size: the share
of a single search that each further query takes."""
MIN_GAIN = 1.05
"""Times the rate of searching first that a guess has to promise: the estimates are not better."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one search.

    Attributes:
        queries: searched for at once.
        matched: guesses before the first wrong one, or all.
        seconds: the search took.
        new: for each guess, whether its passage had to be read; empty where none was made.
        hidden: whether strides were written meanwhile.
        stride_s: seconds for each of those, if all guesses were right and no passage was read.
        lookup_s: seconds to look up a guess in the cache.
    """

    queries: int
    matched: int
    seconds: float
    new: Sequence[bool] = ()
    hidden: bool = False
    stride_s: float | None = None
    lookup_s: float = 0.0


class StrideScheduler(Protocol):
    """Chooses the speculation stride s, and learns from what came of it."""

    @property
    def stride(self) -> int:
        """Strides to write before their queries are verified; 0 to search for each by itself."""
        ...

    @property
    def hides(self) -> bool:
        """Whether to write on during a search, if that is possible."""
        ...

    @property
    def guesses(self) -> bool:
        """Whether guesses could pay: where not, strides that are searched for need none."""
        ...

    @property
    def reads_ahead(self) -> bool:
        """Whether a guessed passage is read, if it has to be, before the search confirms it."""
        ...

    def begin(self) -> None:
        """An answer begins."""
        ...

    def wrote(self, seconds: float, *, new: bool) -> None:
        """One stride was written in `seconds`, with no search beside it.

        Args:
            new: under a passage that had to be read.
        """
        ...

    def verified(self, verification: Verification) -> None:
        """A batch was searched for."""
        ...


class FixedStride:
    """Always the same stride."""

    hides = guesses = reads_ahead = True

    def __init__(self, stride: int = PAPER_STRIDE) -> None:
        self.stride = stride

    def begin(self) -> None:
        """Nothing to forget."""

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Nothing to learn."""

    def verified(self, verification: Verification) -> None:
        """Nothing to learn."""


class Choice(NamedTuple):
    """What a scheduler has chosen; see `StrideScheduler`."""

    stride: int
    hides: bool
    guesses: bool
    reads_ahead: bool


class OptimalStride:
    """OS3, beginning with a stride of 1.

    Args:
        asynchronous: whether strides can be written while a batch is verified.
        max_accuracy: γ_max, with the paper's own objective; None for what differs (see above).
        max_stride: where those do not decide.
        prior_accuracy: of guesses, before any was verified.
    """

    def __init__(
        self,
        *,
        asynchronous: bool,
        max_accuracy: float | None = None,
        max_stride: int = MAX_STRIDE,
        prior_accuracy: float = PRIOR_ACCURACY,
    ) -> None:
        self._choice = Choice(stride=1, hides=False, guesses=True, reads_ahead=True)
        self._stale = self._timed = False
        self._unweighed = 0  # searches since the last choice
        self._begins = True
        self._max_stride = max_stride
        self._asynchronous = asynchronous
        self._max_accuracy = max_accuracy
        self._strides: deque[float] = deque(maxlen=STRIDE_WINDOW)
        self._readings: deque[float] = deque(maxlen=WINDOW)
        self._hidden: deque[float] = deque(maxlen=STRIDE_WINDOW)  # seconds beside a search
        self._lookups: deque[float] = deque(maxlen=WINDOW)
        self._single: deque[float] = deque(maxlen=WINDOW)  # seconds of a query searched for alone
        self._batches: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # (queries, seconds)
        self._right = Share(prior_accuracy)
        self._right_of_new = Share(PRIOR_ACCURACY, READING_WEIGHT)
        self._runs = Runs(prior_accuracy)
        self._runs_read = Runs(prior_accuracy * (1 - PRIOR_NEW))
        self._new = Share(PRIOR_NEW)
        self._new_of_ends = Share(PRIOR_NEW_END)

    @property
    def accuracy(self) -> float:
        """γ, at most γ_max."""
        return min(self._right.estimate, self._max_accuracy or 1.0)

    @property
    def stride(self) -> int:
        """See `StrideScheduler.stride`."""
        return self._chosen.stride

    @property
    def hides(self) -> bool:
        """See `StrideScheduler.hides`; not before a stride of this answer was written with no
        search beside it."""
        return self._chosen.hides and self._timed

    @property
    def guesses(self) -> bool:
        """See `StrideScheduler.guesses`."""
        return self._chosen.guesses

    @property
    def reads_ahead(self) -> bool:
        """See `StrideScheduler.reads_ahead`."""
        return self._chosen.reads_ahead

    @property
    def _chosen(self) -> Choice:
        """By the latest estimates; made when asked for, as that takes a tenth of a millisecond, and
        only every few searches where they are so short that nothing is guessed."""
        if self._stale and (self._choice.guesses or self._unweighed >= WINDOW):
            self._choice, self._stale, self._unweighed = self._choose(), False, 0
        return self._choice

    def begin(self) -> None:
        """Keep what is known of times and runs, and begin a run."""
        self._begins, self._timed = True, False
        self._runs.begin()
        self._runs_read.begin()
        if self._single and (self._strides or self._readings):
            self._stale = True

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Estimate a or c from `seconds` and those before; choose anew where nothing is pending."""
        (self._readings if new else self._strides).append(seconds)
        self._timed = self._timed or not new
        waits = not self._choice.stride or not self._right.added
        if self._single and waits and self._max_accuracy is None:
            self._stale = True

    def verified(self, verification: Verification) -> None:
        """Estimate b, what is hidden, and how often guesses are right; choose the stride anew."""
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
        """Count the guesses up to the first wrong one."""
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
        """The best stride by the present estimates."""
        base_s, query_s = self._verification_line()
        stride_s = _typical(self._strides or self._readings)
        if self._max_accuracy is not None:
            stride = best_stride(
                self.accuracy, stride_s, base_s, query_s, asynchronous=self._asynchronous
            )
            return Choice(stride, self._asynchronous, guesses=True, reads_ahead=True)
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
        return Choice(stride, hides, guesses=True, reads_ahead=reads_ahead)

    def _best(self, chances: Chances, costs: StrideCosts) -> tuple[float, int, bool]:
        """The most times that a stride has the rate of searching first, that stride, and whether
        to write during its search; the shortest of equals."""
        least = 1 / sequential_rate(costs)
        lookup_s = median(self._lookups or [0.0])
        rates = batch_rates(chances, costs.with_lookup(lookup_s))
        at = int(rates.argmax())
        found = (float(rates[at]) * least, at + 1, False)
        # Before one stride was written alone, nothing tells what can be hidden.
        if self._asynchronous and self._strides:
            rate = hidden_rate(chances, costs, self._hidden_s(costs) + lookup_s)
            found = max(found, (rate * least, 1, True))
        return found

    def _hidden_s(self, costs: StrideCosts) -> float:
        """Seconds that a stride takes beside a search."""
        return _typical(self._hidden) if self._hidden else hidden_stride_s(costs)

    def _verification_line(self) -> tuple[float, float]:
        """b as (seconds of any batch, seconds of each further query), neither below 0.

        Least squares over the searches beside which nothing was written, and what is known before;
        a constant while all had one size.
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
    """The mean without the slowest tenth. A pass may write several strides, for all but the first
    of which nothing is left to do: their median would be too short."""
    kept = sorted(seconds)[: len(seconds) - len(seconds) // 10]
    return fmean(kept)
