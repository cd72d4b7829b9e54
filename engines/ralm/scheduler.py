"""How many strides are written ahead before their queries are verified: a fixed number, or OS3.

OS3, the optimal speculation stride scheduler (RaLMSpec, section 4 and appendix), maximises the
expected number of verified strides per second,

    synchronous    (1 − γ^s) / (1 − γ) / (s·a + b)
    asynchronous   (1 − γ^s) / (1 − γ) / (γ^s·((s − 1)·a + max(a, b)) + (1 − γ^s)·(s·a + b))

where a is the time of a speculative stride (encoding its query included), b that of a
verification, and γ the probability that a guess is right. a and b are estimated over the last
verifications. What differs from the paper:

- Its γ is cut off at γ_max = 0.6, which never lets s exceed 5 or so; here the estimate is drawn
  towards the answer's long-run accuracy, so it stays below 1 by itself.
- Its γ counts every guess of the last five verifications alike. Wrong guesses come in bursts, so
  after five long batches that were right, four more would be thrown away before the estimate
  falls. Here guesses are forgotten one by one, at the rate `MEMORY`.
- b is a line over s: a batch costs less than single queries, but on few cores it is not free.
- A passage that is not in the KV cache has to be read, which takes c seconds where a stride under
  the same one takes a: ten times as long with a small model on a CPU. So a wrong guess costs c if
  the true passage is another, and once more if the guessed one was. `reads_ahead` tells whether
  that is risked: if a guess is wrong with probability 1 − p, only while 2·(1 − p)·c < b. Else the
  search comes first for such a guess, and γ is the probability that one is gone on with and right.
- A stride of 0 has a rate, too: search first, as RaLMSeq does, in γ·a + (1 − γ)·c + b. Where
  searching is cheap or guesses are wrong, that is the best there is, and it is kept unless a guess
  promises `MIN_GAIN`; where not even right guesses could promise it, nothing is guessed at all.
- A hidden search begins before the last stride of its batch is written, and strides are written
  until it ends, not one. So a right guess costs the longer of writing and searching. What it really
  costs, since both share cores and memory, is measured; `PRIOR_OVERLAP` is known before.
- The answer's first stride, prompt included, tells b and c before anything was guessed: so the
  first batch is as large as pays, and none where searching is cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WINDOW = 5
"""Verifications whose times are looked at (section 5.1)."""
PAPER_STRIDE = 3
"""The paper's fixed stride."""
MEMORY = 0.9
"""Weight of a guess, where the next one has 1."""
PRIOR_ACCURACY, PRIOR_WEIGHT = 0.6, 2.0
"""What is known of a guess before any was verified, and how many guesses that is worth."""
PRIOR_NEW = 0.2
"""Share of guesses that have to be read, before any was made."""
READING_WEIGHT = 8.0
"""As `PRIOR_WEIGHT`, for guesses that have to be read: few answers have more, and to trust them too
soon costs c, to trust them too late b."""
RISK = 2.0
"""Times the expected loss that a search has to take before such a passage is read ahead: a guess
deep in a batch is wrong more often, and so is all behind it."""
PRIOR_OVERLAP = 0.5
"""Share of the shorter of writing and searching that is not hidden, before that was measured."""
HIDDEN_WINDOW = 3 * WINDOW
"""Hidden strides that are looked at: single searches differ much, and most batches are of one."""
PRIOR_BATCH, PRIOR_QUERY = 4, 0.2
"""What is known of batches before one was searched for, as if it were one of that size: the share
of a single search that each further query takes."""
MIN_GAIN = 1.03
"""Times the rate of searching first that a guess has to promise: the estimates are not better."""
MAX_STRIDE = 32
"""Strides written ahead at most: 128 tokens at k = 4."""
MAX_AHEAD = 3
"""Strides written during a search beside the last of its batch."""

Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one search.

    Attributes:
        queries: verified at once.
        matched: guesses before the first wrong one, or all.
        seconds: the search took.
        new: for each guess, whether its passage had to be read; empty where none was made.
        hidden: whether strides were written meanwhile.
        stride_s: seconds for each of those, if all guesses were right and no passage was read.
    """

    queries: int
    matched: int
    seconds: float
    new: Sequence[bool] = ()
    hidden: bool = False
    stride_s: float | None = None


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

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Nothing to learn."""

    def verified(self, verification: Verification) -> None:
        """Nothing to learn."""


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
        self.stride = 1
        self.hides = False
        self.guesses = self.reads_ahead = True
        self._max_stride = max_stride
        self._asynchronous = asynchronous
        self._max_accuracy = max_accuracy
        self._strides: deque[float] = deque(maxlen=WINDOW)
        self._readings: deque[float] = deque(maxlen=WINDOW)
        self._hidden: deque[float] = deque(maxlen=HIDDEN_WINDOW)  # seconds beside a search
        self._single: deque[float] = deque(maxlen=WINDOW)  # seconds of a query searched for alone
        self._batches: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # (queries, seconds)
        self._right = Share(prior_accuracy)
        self._right_of_new = Share(PRIOR_ACCURACY, READING_WEIGHT)
        self._right_and_read = Share(prior_accuracy * (1 - PRIOR_NEW))
        self._new = Share(PRIOR_NEW)

    @property
    def accuracy(self) -> float:
        """γ, at most γ_max."""
        return min(self._right.estimate, self._max_accuracy or 1.0)

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Estimate a or c from `seconds` and those before; choose anew where nothing is pending."""
        (self._readings if new else self._strides).append(seconds)
        waits = not self.stride or not self._right.added
        if self._single and waits and self._max_accuracy is None:
            self._choose()

    def verified(self, verification: Verification) -> None:
        """Estimate b, what is hidden, and how often guesses are right; choose the stride anew."""
        self._compare(verification)
        if verification.stride_s is not None:
            self._hidden.append(verification.stride_s)
        if not verification.hidden:
            if verification.queries == 1:
                self._single.append(verification.seconds)
            else:
                self._batches.append((verification.queries, verification.seconds))
        if self._strides or self._readings:
            self._choose()

    def _compare(self, verification: Verification) -> None:
        """Count the guesses up to the first wrong one."""
        compared = verification.new[: verification.matched + 1]
        right = [at < verification.matched for at in range(len(compared))]
        pairs = list(zip(right, compared, strict=True))
        self._right.add(right)
        self._right_of_new.add([one for one, new in pairs if new])
        self._right_and_read.add([one and not new for one, new in pairs])
        self._new.add(compared)

    def _choose(self) -> None:
        """The best stride by the present estimates."""
        base_s, query_s = self._verification_line()
        stride_s = _mean(self._strides or self._readings)
        if self._max_accuracy is not None:
            self.stride = best_stride(
                self.accuracy, stride_s, base_s, query_s, asynchronous=self._asynchronous
            )
            self.hides = self._asynchronous
            return
        costs = StrideCosts(stride_s, base_s, query_s, _mean(self._readings or [stride_s]))
        unsure = 1 - self._right_of_new.estimate
        self.reads_ahead = unsure * costs.reading_s * RISK < costs.verification_s(1)
        new, same = self._new.estimate, self._right_and_read.estimate
        if self.reads_ahead:
            chances = Chances(self._right.estimate, new, 0.0)
        else:
            chances = Chances(same, 0.0, new)
        gain, self.stride, self.hides = self._best(chances, same, costs)
        if gain < MIN_GAIN:
            self.stride, self.hides = 0, False
        self.guesses = gain >= MIN_GAIN or self._best(SURE, 1.0, costs)[0] >= MIN_GAIN

    def _best(self, chances: Chances, same: float, costs: StrideCosts) -> tuple[float, int, bool]:
        """The most times that a stride has the rate of searching first, that stride, and whether
        to write during its search; the shortest of equals."""
        least = 1 / sequential_rate(same, costs)
        rates = batch_rates(chances, costs, self._max_stride)
        at = int(rates.argmax())
        found = (float(rates[at]) * least, at + 1, False)
        # Before one stride was written alone, nothing tells what can be hidden.
        if self._asynchronous and self._strides:
            hidden_s = median(self._hidden) if self._hidden else hidden_stride_s(costs)
            found = max(found, (hidden_rate(chances, costs, hidden_s) * least, 1, True))
        return found

    def _verification_line(self) -> tuple[float, float]:
        """b as (seconds of any batch, seconds of each further query), neither below 0.

        Least squares over the searches beside which nothing was written, and what is known before;
        a constant while all had one size.
        """
        searches = [*((1, seconds) for seconds in self._single), *self._batches]
        if self._single:
            more = PRIOR_QUERY * (PRIOR_BATCH - 1)
            searches.append((PRIOR_BATCH, _mean(self._single) * (1 + more)))
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


def best_stride(
    accuracy: float, stride_s: float, base_s: float, query_s: float, *, asynchronous: bool
) -> int:
    """The stride with the largest `rate`, the shortest of equals."""
    return max(
        range(1, MAX_STRIDE + 1),
        key=lambda stride: rate(
            stride, accuracy, stride_s, base_s + query_s * stride, asynchronous=asynchronous
        ),
    )


def rate(
    stride: int, accuracy: float, stride_s: float, verify_s: float, *, asynchronous: bool
) -> float:
    """Expected strides verified per second: the paper's objectives (see above)."""
    verified = sum(accuracy**power for power in range(stride))
    synchronous_s = stride * stride_s + verify_s
    if not asynchronous:
        return verified / max(synchronous_s, 1e-9)
    all_right = accuracy**stride
    hidden_s = (stride - 1) * stride_s + max(stride_s, verify_s)
    return verified / max(all_right * hidden_s + (1 - all_right) * synchronous_s, 1e-9)


class Share:
    """How often something is so: lately, drawn towards the long run.

    Args:
        prior: before anything was seen.
        weight: of the prior in the long run, and of that in the estimate.

    Attributes:
        added: outcomes so far.
    """

    def __init__(self, prior: float, weight: float = PRIOR_WEIGHT) -> None:
        self.added = 0
        self._prior, self._weight = prior, weight
        self._so = 0  # of all that were added
        self._lately_so = self._lately = 0.0

    def add(self, outcomes: Sequence[bool]) -> None:
        """Whether it was so, in order."""
        for outcome in outcomes:
            self._lately_so = self._lately_so * MEMORY + outcome
            self._lately = self._lately * MEMORY + 1
        self.added += len(outcomes)
        self._so += sum(outcomes)

    @property
    def estimate(self) -> float:
        """Between 0 and 1, neither of them."""
        long_run = (self._so + self._weight * self._prior) / (self.added + self._weight)
        return (self._lately_so + self._weight * long_run) / (self._lately + self._weight)


@dataclass(frozen=True, slots=True)
class Chances:
    """What becomes of a stride.

    Attributes:
        right: its guess is gone on with, and right (γ).
        new: it is gone on with after its passage was read.
        first: it is searched for first, because its passage would have to be read.
    """

    right: float
    new: float
    first: float


SURE = Chances(1.0, 0.0, 0.0)
"""The most that guesses can be."""


@dataclass(frozen=True, slots=True)
class StrideCosts:
    """What a batch costs.

    Attributes:
        stride_s: seconds to write a stride (a).
        base_s, query_s: to verify any batch, and each of its queries (b).
        reading_s: to write a stride under a passage that has to be read (c).
    """

    stride_s: float
    base_s: float
    query_s: float
    reading_s: float

    def verification_s(self, queries: float) -> float:
        """b of so many queries."""
        return self.base_s + self.query_s * queries

    def mean_stride_s(self, new: float) -> float:
        """Seconds to write a stride whose passage has to be read with the probability `new`."""
        return self.stride_s + new * (self.reading_s - self.stride_s)


def sequential_rate(same: float, costs: StrideCosts) -> float:
    """Strides per second where each is searched for first, as RaLMSeq does; `same` is the
    probability that its passage need not be read."""
    return 1 / max(costs.mean_stride_s(1 - same) + costs.verification_s(1), 1e-9)


def batch_rates(chances: Chances, costs: StrideCosts, longest: int) -> Rates:
    """Expected strides confirmed per second, what a wrong guess costs included, for the strides
    from 1 to `longest`.

    A batch ends early at a stride that is searched for first, whose query it includes.
    """
    lengths = np.arange(1, longest + 1)
    all_right = chances.right**lengths
    whole = (1 - chances.first) ** lengths
    confirmed = np.cumsum(chances.right ** (lengths - 1))
    written = np.cumsum(whole)
    searching_s = costs.base_s + costs.query_s * (written + 1 - whole)
    writing_s = written * costs.mean_stride_s(chances.new) + (1 - all_right) * costs.reading_s
    rates: Rates = confirmed / np.maximum(writing_s + searching_s, 1e-9)
    return rates


def hidden_rate(chances: Chances, costs: StrideCosts, hidden_s: float) -> float:
    """Strides confirmed per second where searches are hidden; `hidden_s` is what a stride takes
    whose guess is right and whose passage need not be read."""
    right_s = hidden_s + costs.mean_stride_s(chances.new) - costs.stride_s
    wrong_s = costs.verification_s(1) + costs.reading_s
    return 1 / max(chances.right * right_s + (1 - chances.right) * wrong_s, 1e-9)


def hidden_stride_s(costs: StrideCosts) -> float:
    """What a stride beside a search is expected to take before that was measured: the longer of
    the two and a share of the shorter, with as many strides to a search as are best."""
    best = float("inf")
    for strides in range(1, MAX_AHEAD + 2):
        shorter, longer = sorted((strides * costs.stride_s, costs.verification_s(strides)))
        best = min(best, (longer + PRIOR_OVERLAP * shorter) / strides)
    return best


def speedup_bound(stride: float, ratio: float, *, asynchronous: bool) -> float:
    """The most that RaLMSpec can gain over RaLMSeq if every guess is right and batches are free.

    Args:
        stride: s; the mean of them where it varies.
        ratio: r, retrieval time ÷ generation time of one stride.
    """
    if asynchronous:
        return stride * (1 + ratio) / (stride - 1 + max(1.0, ratio))
    return (1 + ratio) / (1 + ratio / stride)


def _mean(values: Collection[float]) -> float:
    """0 of none; for five values many times faster than NumPy's."""
    return sum(values) / max(len(values), 1)
