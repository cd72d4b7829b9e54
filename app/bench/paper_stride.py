"""OS3 as in the paper, which `engines.ralm.scheduler` is compared with (RaLMSpec, section 4).

The stride s maximises the expected number of verified strides per second,

    synchronous    (1 − γ^s) / (1 − γ) / (s·a + b)
    asynchronous   (1 − γ^s) / (1 − γ) / (γ^s·((s − 1)·a + max(a, b)) + (1 − γ^s)·(s·a + b))

where a is the time of a speculated stride, b that of a verification, and γ the probability that a
guess is correct. All three are estimated over the last `WINDOW` verifications; γ by maximum
likelihood: correct guesses ÷ (correct guesses + verifications with a wrong one), at most
`MAX_ACCURACY`.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean

from engines.ralm.scheduler import Choice, Verification
from engines.ralm.stride_rates import MAX_STRIDE

WINDOW = 5
MAX_ACCURACY = 0.6
"""γ_max."""


class PaperStride:
    """Implements `engines.ralm.scheduler.StrideScheduler`; it starts with a stride of 1."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.choice = Choice(1, asynchronous)
        self._asynchronous = asynchronous
        self._strides: deque[float] = deque(maxlen=WINDOW)
        self._searches: deque[float] = deque(maxlen=WINDOW)
        self._matched: deque[tuple[int, bool]] = deque(maxlen=WINDOW)  # correct, one was wrong

    @property
    def accuracy(self) -> float:
        """The estimate of γ; `MAX_ACCURACY` before any guess was verified."""
        right, wrong = (sum(counts) for counts in zip((0, 0), *self._matched, strict=True))
        return min(right / (right + wrong), MAX_ACCURACY) if right + wrong else MAX_ACCURACY

    def begin(self) -> None:
        """See `StrideScheduler.begin`; estimates carry over."""

    def wrote(self, seconds: float, *, new: bool) -> None:
        """Update a."""
        self._strides.append(seconds)

    def verified(self, verification: Verification) -> None:
        """Update b, γ and the choice."""
        self._searches.append(verification.seconds)
        if guesses := len(verification.new):
            matched = min(verification.matched, guesses)
            self._matched.append((matched, matched < guesses))
        if self._strides:
            stride_s, search_s = fmean(self._strides), fmean(self._searches)
            best = best_stride(self.accuracy, stride_s, search_s, asynchronous=self._asynchronous)
            self.choice = Choice(best, self._asynchronous)


def best_stride(accuracy: float, stride_s: float, verify_s: float, *, asynchronous: bool) -> int:
    """The stride with the largest `rate`; of equals the shortest."""
    return max(
        range(1, MAX_STRIDE + 1),
        key=lambda stride: rate(stride, accuracy, stride_s, verify_s, asynchronous=asynchronous),
    )


def rate(
    stride: int, accuracy: float, stride_s: float, verify_s: float, *, asynchronous: bool
) -> float:
    """Expected verified strides per second."""
    verified = sum(accuracy**power for power in range(stride))
    synchronous_s = stride * stride_s + verify_s
    if not asynchronous:
        return verified / max(synchronous_s, 1e-9)
    all_right = accuracy**stride
    hidden_s = (stride - 1) * stride_s + max(stride_s, verify_s)
    return verified / max(all_right * hidden_s + (1 - all_right) * synchronous_s, 1e-9)
