"""Expected throughput of a speculation stride: confirmed strides per second, and upper bounds.

`scheduler` explains how they differ from the paper's, and estimates the times and probabilities
that the formulas take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

MAX_STRIDE = 32
"""Maximum number of strides written ahead: 128 tokens at k = 4."""
MAX_AHEAD = 3
"""Maximum number of strides written during a search, besides the last of its batch."""
PRIOR_OVERLAP = 0.5
"""Assumed share of the shorter of writing and searching that is not hidden, until measured."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chances:
    """Probabilities of what happens to speculated strides.

    Attributes:
        all_right: for n = 0 to the maximum, P(n strides are speculated and correct): 1, γ, γ², ...
        new: P(a speculated stride's passage needs prefill).
        first: P(a run that ends does so at a stride that is searched first, because its passage
            would need prefill).
    """

    all_right: Floats
    new: float
    first: float


@dataclass(frozen=True, slots=True)
class StrideCosts:
    """Costs of a batch, in seconds.

    Attributes:
        stride_s: writing a stride (a).
        base_s: verifying a batch, whatever its size (part of b).
        query_s: verifying each of its queries (part of b).
        reading_s: writing a stride whose passage needs prefill (c). Below `stride_s` where the
            truth needs no writing (KNN-LM's corrected tokens): a misprediction costs no more.
    """

    stride_s: float
    base_s: float
    query_s: float
    reading_s: float

    def verification_s(self, queries: float) -> float:
        """b: time to verify `queries`."""
        return self.base_s + self.query_s * queries

    def with_lookup(self, seconds: float) -> StrideCosts:
        """The costs if each stride's passage is looked up in the cache, which takes `seconds`."""
        return replace(self, stride_s=self.stride_s + seconds, reading_s=self.reading_s + seconds)


def sequential_rate(costs: StrideCosts) -> float:
    """Strides per second where each is searched first, as in RaLMSeq."""
    return 1 / max(costs.stride_s + costs.verification_s(1), 1e-9)


def batch_rates(chances: Chances, costs: StrideCosts) -> Floats:
    """Expected confirmed strides per second, mispredictions included, for s = 1 to the maximum.

    A batch ends early at a stride that is searched first; it includes that stride's query.
    """
    all_right = chances.all_right
    wrong = 1 - all_right[1:]
    whole = 1 - wrong * chances.first
    confirmed = np.cumsum(all_right[:-1])
    written = np.cumsum(whole)
    wasted = np.maximum(written - np.cumsum(all_right[1:]), 0.0)
    searching_s = costs.base_s + costs.query_s * (written + 1 - whole)
    writing_s = written * costs.stride_s + wrong * min(costs.stride_s, costs.reading_s)
    wasted_s = wasted * chances.new * max(costs.reading_s - costs.stride_s, 0.0)
    rates: Floats = confirmed / np.maximum(writing_s + wasted_s + searching_s, 1e-9)
    return rates


def hidden_rate(chances: Chances, costs: StrideCosts, hidden_s: float) -> float:
    """Confirmed strides per second where searches overlap with writing.

    A mispredicted passage is prefilled to its end even if the search is done before.

    Args:
        hidden_s: seconds per stride if the guess is correct and its passage needs no prefill.
    """
    search_s = costs.verification_s(1)
    in_vain_s = max(costs.reading_s - search_s, 0.0)
    wrong_s = search_s + costs.stride_s + chances.new * in_vain_s
    right = float(chances.all_right[1])
    return 1 / max(right * hidden_s + (1 - right) * wrong_s, 1e-9)


def hidden_stride_s(costs: StrideCosts) -> float:
    """Prior estimate of `hidden_rate`'s `hidden_s`.

    Assumes the longer of writing and searching plus `PRIOR_OVERLAP` of the shorter, with the best
    number of strides per search.
    """
    best = float("inf")
    for strides in range(1, MAX_AHEAD + 2):
        shorter, longer = sorted((strides * costs.stride_s, costs.verification_s(strides)))
        best = min(best, (longer + PRIOR_OVERLAP * shorter) / strides)
    return best


def speedup_bound(stride: float, ratio: float, *, asynchronous: bool) -> float:
    """Upper bound of RaLMSpec's speed-up over RaLMSeq: all guesses correct, batches free.

    Args:
        stride: s; its mean where it varies.
        ratio: r, retrieval time ÷ generation time of one stride.
    """
    if asynchronous:
        return stride * (1 + ratio) / (stride - 1 + max(1.0, ratio))
    return (1 + ratio) / (1 + ratio / stride)
