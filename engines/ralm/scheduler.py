"""How many strides are written ahead before their queries are verified: a fixed number, or OS3.

OS3, the optimal speculation stride scheduler (RaLMSpec, section 4 and appendix), maximises the
expected number of verified strides per second,

    synchronous    (1 − γ^s) / (1 − γ) / (s·a + b)
    asynchronous   (1 − γ^s) / (1 − γ) / (γ^s·((s − 1)·a + max(a, b)) + (1 − γ^s)·(s·a + b))

where a is the time of a speculative stride (encoding its query included), b that of a
verification, and γ the probability that a guess is right. All three are estimated over the last
verifications. What differs from the paper:

- Its γ is cut off at γ_max = 0.6, which never lets s exceed 5 or so; here the estimate is drawn
  towards the answer's long-run accuracy, so it stays below 1 by itself.
- b is a line over s: a batch costs less than single queries, but on few cores it is not free.
- A wrong guess costs more than the verification: the stride is written again, in c seconds, since
  another passage has to be read (a is that of strides for which none was), and a stride that was
  written meanwhile is waited for and dropped. With these terms, a stride of 0 has a
  rate, too: search first, as RaLMSeq does, in γ·a + (1 − γ)·c + b; the passage changes where a
  guess would have been wrong. Where searching is cheap or guesses are wrong, that is the best there
  is, and it is kept unless a guess promises `MIN_GAIN`. Whether a verification is hidden is chosen
  with the stride.
- A stride can be searched for and written under a guess at once, in max(a, b), and writing stops
  when the guess is found to be wrong; a guess of another passage waits for the search. So a wrong
  one costs next to nothing. Where b < a, this hides as much as asynchronous verification, which
  learns of a wrong guess one stride later.
- Where searching is so cheap that not even right guesses could promise it, nothing is guessed at
  all, and each stride costs what it costs RaLMSeq.
- Searching and writing share cores and memory, so together they take more than the longer of the
  two: max(a, b) + o·min(a, b), where o is measured. At o = 1 nothing is hidden.
- The answer's first stride, prompt included, tells b and c before anything was guessed: so the
  first batch is as large as pays, and none where searching is cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WINDOW = 5
"""Verifications that the estimates look at (section 5.1)."""
PAPER_STRIDE = 3
"""The paper's fixed stride."""
PRIOR_ACCURACY, PRIOR_WEIGHT = 0.6, 2.0
"""What is known of γ before anything was verified, and how many guesses that is worth."""
PRIOR_OVERLAP = 0.5
"""What is known of o before a verification was hidden, worth one such."""
MAX_OVERLAP = 2.0
"""Of one measurement: one that was disturbed must not rule hiding out for the answer."""
MAX_HIDDEN = 1.5
"""Strides that a hidden search may take: it has one thread, and a longer one gains from all."""
MIN_GAIN = 1.03
"""Times the rate of searching first that a guess has to promise: the estimates are not better."""
MAX_STRIDE = 32
"""Strides written ahead at most: 128 tokens at k = 4."""

Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of one verification.

    Attributes:
        queries: verified at once.
        matched: guesses before the first wrong one, or all.
        seconds: the search took.
        beside: the stride that was written meanwhile; None if none was.
    """

    queries: int
    matched: int
    seconds: float
    beside: HiddenStride | None = None


@dataclass(frozen=True, slots=True)
class HiddenStride:
    """A stride that was written during a search.

    Attributes:
        seconds: it took; together_s: until the search was done as well.
        whole: whether it was written to its end, and under the passage of the one before.
    """

    seconds: float
    together_s: float
    whole: bool


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

    def began(self, search_s: float, writing_s: float) -> None:
        """The first stride, which needs no guess, was searched for and written, prompt included."""
        ...

    def wrote(self, seconds: float, *, changed: bool) -> None:
        """One stride was written in `seconds`, with no search beside it.

        Args:
            changed: whether under another passage than the one before, which had to be read.
        """
        ...

    def verified(self, verification: Verification) -> None:
        """A batch was verified."""
        ...

    def retrieved(self, search_s: float, right: bool | None) -> None:
        """A stride was searched for by itself; `right` tells of its guess, if any."""
        ...


class FixedStride:
    """Always the same stride."""

    hides = guesses = True

    def __init__(self, stride: int = PAPER_STRIDE) -> None:
        self.stride = stride

    def began(self, search_s: float, writing_s: float) -> None:
        """Nothing to learn."""

    def wrote(self, seconds: float, *, changed: bool) -> None:
        """Nothing to learn."""

    def verified(self, verification: Verification) -> None:
        """Nothing to learn."""

    def retrieved(self, search_s: float, right: bool | None) -> None:
        """Nothing to learn."""


class OptimalStride:
    """OS3, beginning with a stride of 1.

    Args:
        asynchronous: whether one stride can be written while a batch is verified.
        max_accuracy: γ_max, with the paper's own objectives; None for what differs (see above).
        max_stride: where those do not decide.
    """

    def __init__(
        self,
        *,
        asynchronous: bool,
        max_accuracy: float | None = None,
        max_stride: int = MAX_STRIDE,
    ) -> None:
        self.stride = 1
        self.hides = False
        self.guesses = True
        self._max_stride = max_stride
        self._asynchronous = asynchronous
        self._max_accuracy = max_accuracy
        self._strides: deque[float] = deque(maxlen=WINDOW)
        self._rewrites: deque[float] = deque(maxlen=WINDOW)
        self._overlaps: deque[float] = deque([PRIOR_OVERLAP], maxlen=WINDOW)
        self._recent: deque[Verification] = deque(maxlen=WINDOW)
        self._single: deque[float] = deque(maxlen=WINDOW)  # seconds of a query searched for alone
        self._batches: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # (queries, seconds)
        self._right, self._wrong = (
            PRIOR_ACCURACY * PRIOR_WEIGHT,
            (1 - PRIOR_ACCURACY) * PRIOR_WEIGHT,
        )

    @property
    def accuracy(self) -> float:
        """γ: the maximum-likelihood estimate over the window, drawn towards the long run."""
        right = sum(one.matched for one in self._recent)
        wrong = sum(one.matched < one.queries for one in self._recent)
        long_run = self._right / (self._right + self._wrong)
        estimate = (right + PRIOR_WEIGHT * long_run) / (right + wrong + PRIOR_WEIGHT)
        return estimate if self._max_accuracy is None else min(estimate, self._max_accuracy)

    def began(self, search_s: float, writing_s: float) -> None:
        """Estimate b and c."""
        self._single.append(search_s)
        self._rewrites.append(writing_s)
        if self._max_accuracy is None:
            self._choose()

    def wrote(self, seconds: float, *, changed: bool) -> None:
        """Estimate a or c from `seconds` and those before; choose anew where nothing is pending."""
        (self._rewrites if changed else self._strides).append(seconds)
        if self._single and (not self.stride or not self._recent) and self._max_accuracy is None:
            self._choose()

    def verified(self, verification: Verification) -> None:
        """Estimate b, o and γ, and choose the stride anew."""
        self._compared(verification)
        if verification.beside is not None:
            if verification.beside.whole:
                self._overlap(verification, verification.beside)
        elif verification.queries == 1:
            self._single.append(verification.seconds)
        else:
            self._batches.append((verification.queries, verification.seconds))
        self._choose()

    def retrieved(self, search_s: float, right: bool | None) -> None:
        """Estimate b and, with a guess, γ; `wrote` follows."""
        self._single.append(search_s)
        if right is not None:
            self._compared(Verification(1, int(right), search_s))

    def _compared(self, verification: Verification) -> None:
        self._recent.append(verification)
        self._right += verification.matched
        self._wrong += verification.matched < verification.queries

    def _choose(self) -> None:
        """The best stride by the present estimates."""
        stride_s = _mean(self._strides or self._rewrites)
        base_s, query_s = self._verification_line()
        if self._max_accuracy is not None:
            self.hides = self._asynchronous
            self.stride = best_stride(
                self.accuracy, stride_s, base_s, query_s, asynchronous=self._asynchronous
            )
            return
        costs = StrideCosts(
            stride_s,
            base_s,
            query_s,
            _mean(self._rewrites) if self._rewrites else stride_s,
            median(self._overlaps),
        )
        gain, self.stride, self.hides = self._best(self.accuracy, costs)
        if gain < MIN_GAIN:
            self.stride, self.hides = 0, False
        self.guesses = gain >= MIN_GAIN or self._best(1.0, costs)[0] >= MIN_GAIN

    def _best(self, accuracy: float, costs: StrideCosts) -> tuple[float, int, bool]:
        """The most times that a stride has the rate of searching first, that stride, and whether
        to write during its search; the shortest of equals."""
        least = 1 / sequential_rate(accuracy, costs)
        found = (0.0, 0, False)
        # Before one stride was written alone, nothing tells what is hidden.
        longest = MAX_HIDDEN * costs.stride_s if self._asynchronous and self._strides else 0.0
        if costs.base_s + costs.query_s <= longest:
            found = (beside_rate(accuracy, costs) * least, 0, True)
        for hides in (False, True) if longest else (False,):
            rates = full_rates(accuracy, costs, self._max_stride, hides=hides)
            if hides:
                sizes = np.arange(1, self._max_stride + 1)
                rates[costs.base_s + costs.query_s * sizes > longest] = 0.0
            at = int(rates.argmax())
            found = max(found, (float(rates[at]) * least, at + 1, hides))
        return found

    def _overlap(self, hidden: Verification, beside: HiddenStride) -> None:
        """Estimate o, and a where the last strides were disturbed more than this one."""
        stride_s = min(median(self._strides), beside.seconds) if self._strides else beside.seconds
        if beside.seconds < _mean(self._strides):
            self._strides.append(beside.seconds)
        base_s, query_s = self._verification_line()
        verify_s = base_s + query_s * hidden.queries
        shorter, longer = sorted((stride_s, verify_s))
        overlap = max(beside.together_s - longer, 0.0) / max(shorter, 1e-9)
        self._overlaps.append(min(overlap, MAX_OVERLAP))

    def _verification_line(self) -> tuple[float, float]:
        """b as (seconds of any batch, seconds of each further query), neither below 0.

        Least squares over the searches beside which nothing was written; a constant while all had
        one size.
        """
        searches = [*((1, seconds) for seconds in self._single), *self._batches]
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


@dataclass(frozen=True, slots=True)
class StrideCosts:
    """What a batch costs.

    Attributes:
        stride_s: seconds to write a stride (a).
        base_s, query_s: to verify any batch, and each of its queries (b).
        rewrite_s: to write a stride under another passage than the one before, or again (c).
        overlap: share of the shorter of a and b that is not hidden when both go on at once (o).
    """

    stride_s: float
    base_s: float
    query_s: float
    rewrite_s: float
    overlap: float = 0.0


def sequential_rate(accuracy: float, costs: StrideCosts) -> float:
    """Strides per second where each is searched for first, as RaLMSeq does."""
    writing_s = accuracy * costs.stride_s + (1 - accuracy) * costs.rewrite_s
    return 1 / max(writing_s + costs.base_s + costs.query_s, 1e-9)


def beside_rate(accuracy: float, costs: StrideCosts) -> float:
    """Strides per second where each is searched for while it is written under a guess."""
    a, b = costs.stride_s, costs.base_s + costs.query_s
    disturbed_s = costs.overlap * min(a, b)
    wrong_s = b + disturbed_s + costs.rewrite_s
    return 1 / max(accuracy * (max(a, b) + disturbed_s) + (1 - accuracy) * wrong_s, 1e-9)


def full_rates(accuracy: float, costs: StrideCosts, longest: int, *, hides: bool) -> Rates:
    """Expected strides confirmed per second, what a wrong guess costs included, for the strides
    from 1 to `longest`.

    Args:
        hides: whether one more stride is written during the verification.
    """
    strides = np.arange(1, longest + 1)
    a, b = costs.stride_s, costs.base_s + costs.query_s * strides
    all_right = accuracy**strides
    confirmed = (1 - all_right) / (1 - accuracy) if accuracy < 1 else strides
    if hides:
        right_s = (strides - 1) * a + np.maximum(a, b) + costs.overlap * np.minimum(a, b)
        seconds = right_s + (1 - all_right) * (a + costs.rewrite_s)
    else:
        seconds = strides * a + b + (1 - all_right) * costs.rewrite_s
    rates: Rates = confirmed / np.maximum(seconds, 1e-9)
    return rates


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
