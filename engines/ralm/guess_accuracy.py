"""How often guesses are right: lately and in the long run, and by what went before.

Owns the estimates. Refuses to know what a wrong guess costs (`stride_rates`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.ralm.stride_rates import MAX_STRIDE, Floats

MEMORY = 0.9
"""Weight of a guess, where the next one has 1."""
PRIOR_ACCURACY, PRIOR_WEIGHT = 0.8, 2.0
"""What is known of a guess before any was verified, and how many guesses that is worth."""
RUN_WEIGHT = 16.0
"""As `PRIOR_WEIGHT`, for the guesses after runs of about one length."""
LATE_WEIGHT = 4.0
"""Wrong guesses, as many as expected, that an answer is taken to have had before its first."""
MIN_CHANCE = 0.05
"""The least probability that a guess is right."""


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


class Runs:
    """How often a guess is right, by how many were right in a row before it.

    Before anything was seen, as if guesses had one probability that each run tells more of: after k
    right ones, as many of `PRIOR_WEIGHT` + k are wrong as the prior has of `PRIOR_WEIGHT`. Some
    answers have more wrong ones than others: the share is scaled by how many of the answer's last
    guesses were wrong, relative to how many were expected.
    """

    def __init__(self, prior_accuracy: float) -> None:
        self._run = 0
        steps = np.arange(MAX_STRIDE)
        self._prior = PRIOR_WEIGHT * (1 - prior_accuracy) / (PRIOR_WEIGHT + steps)
        self._wrong = [0] * _RUN_LENGTHS
        self._seen = [0] * _RUN_LENGTHS
        self._lately_wrong = self._expected = 0.0

    def begin(self) -> None:
        """An answer begins."""
        self._run = 0
        self._lately_wrong = self._expected = 0.0

    def add(self, outcomes: Sequence[bool]) -> None:
        """Whether guesses were right, in order."""
        for right in outcomes:
            self._expected = self._expected * MEMORY + self._wrong_share(self._run)
            self._lately_wrong = self._lately_wrong * MEMORY + (not right)
            about = _about(self._run)
            self._seen[about] += 1
            self._wrong[about] += not right
            self._run = self._run + 1 if right else 0

    def chances(self, longest: int) -> Floats:
        """The probability that at least so many more are right in a row, for 0 to `longest`."""
        lately = (self._lately_wrong + LATE_WEIGHT) / (self._expected + LATE_WEIGHT)
        runs = range(self._run, self._run + longest)
        wrong = np.array([self._wrong_share(run) for run in runs]) * lately
        return np.cumprod([1.0, *np.maximum(1 - wrong, MIN_CHANCE)], dtype=np.float64)

    def _wrong_share(self, run: int) -> float:
        about, prior = _about(run), float(self._prior[min(run, len(self._prior) - 1)])
        return (self._wrong[about] + RUN_WEIGHT * prior) / (self._seen[about] + RUN_WEIGHT)


_RUN_LENGTHS = 6


def _about(run: int) -> int:
    """Which runs are counted together: of 0, 1, 2 or 3, 4 to 7, 8 to 15, and more."""
    return min(run.bit_length(), _RUN_LENGTHS - 1)
