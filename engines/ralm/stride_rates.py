"""What a speculation stride is expected to bring: verified strides per second, and its bounds.

The paper's objectives (`rate`), and those of `scheduler` (`batch_rates`, `hidden_rate`), which says
how they differ. Owns the formulas. Refuses to know how times and chances are estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

MAX_STRIDE = 32
"""Strides written ahead at most: 128 tokens at k = 4."""
MAX_AHEAD = 3
"""Strides written during a search beside the last of its batch."""
PRIOR_OVERLAP = 0.5
"""Share of the shorter of writing and searching that is not hidden, before that was measured."""

Floats = NDArray[np.float64]


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
    """Expected strides verified per second: the paper's objectives (see `scheduler`)."""
    verified = sum(accuracy**power for power in range(stride))
    synchronous_s = stride * stride_s + verify_s
    if not asynchronous:
        return verified / max(synchronous_s, 1e-9)
    all_right = accuracy**stride
    hidden_s = (stride - 1) * stride_s + max(stride_s, verify_s)
    return verified / max(all_right * hidden_s + (1 - all_right) * synchronous_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Chances:
    """What becomes of strides.

    Attributes:
        all_right: for 0 to the most strides, the probability that so many guesses are gone on with,
            and right (1, γ, γ², ...).
        new: one is gone on with after its passage was read.
        first: a run that ends does so at one that is searched for first, because its passage would
            have to be read.
    """

    all_right: Floats
    new: float
    first: float


@dataclass(frozen=True, slots=True)
class StrideCosts:
    """What a batch costs.

    Attributes:
        stride_s: seconds to write a stride (a).
        base_s, query_s: to verify any batch, and each of its queries (b).
        reading_s: to write a stride under a passage that has to be read (c). Below `stride_s` where
            what is right is known without writing it: that is all a wrong guess costs then.
    """

    stride_s: float
    base_s: float
    query_s: float
    reading_s: float

    def verification_s(self, queries: float) -> float:
        """b of so many queries."""
        return self.base_s + self.query_s * queries

    def with_lookup(self, seconds: float) -> StrideCosts:
        """The same where each stride's passage is looked up in the cache, in so many seconds."""
        return replace(self, stride_s=self.stride_s + seconds, reading_s=self.reading_s + seconds)


def sequential_rate(costs: StrideCosts) -> float:
    """Strides per second where each is searched for first, as RaLMSeq does."""
    return 1 / max(costs.stride_s + costs.verification_s(1), 1e-9)


def batch_rates(chances: Chances, costs: StrideCosts) -> Floats:
    """Expected strides confirmed per second, what a wrong guess costs included, for the strides
    from 1 to the most.

    A batch ends early at a stride that is searched for first, whose query it includes.
    """
    all_right = chances.all_right
    whole = 1 - (1 - all_right[1:]) * chances.first
    confirmed = np.cumsum(all_right[:-1])
    written = np.cumsum(whole)
    wrong = 1 - all_right[1:]
    wasted = np.maximum(written - np.cumsum(all_right[1:]), 0.0)
    searching_s = costs.base_s + costs.query_s * (written + 1 - whole)
    writing_s = written * costs.stride_s + wrong * min(costs.stride_s, costs.reading_s)
    wasted_s = wasted * chances.new * max(costs.reading_s - costs.stride_s, 0.0)
    rates: Floats = confirmed / np.maximum(writing_s + wasted_s + searching_s, 1e-9)
    return rates


def hidden_rate(chances: Chances, costs: StrideCosts, hidden_s: float) -> float:
    """Strides confirmed per second where searches are hidden; `hidden_s` is what a stride takes
    whose guess is right and whose passage need not be read. A passage that is read for a wrong
    guess is read to its end, even if the search is done before."""
    search_s = costs.verification_s(1)
    in_vain_s = max(costs.reading_s - search_s, 0.0)
    wrong_s = search_s + costs.stride_s + chances.new * in_vain_s
    right = float(chances.all_right[1])
    return 1 / max(right * hidden_s + (1 - right) * wrong_s, 1e-9)


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
