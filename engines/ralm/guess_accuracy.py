"""The probability that guesses are correct, from recent and long-run outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.ralm.stride_rates import MAX_STRIDE, Floats

MEMORY = 0.9
"""Decay of an outcome's weight with each further outcome."""
PRIOR_ACCURACY, PRIOR_WEIGHT = 0.8, 2.0
"""Expected accuracy before any guess was verified, and its weight in outcomes."""
RUN_WEIGHT = 16.0
"""Weight of the prior for guesses after runs of similar length."""
ANSWER_WEIGHT = 4.0
"""Pseudo-count of errors, and of expected errors, with which each answer starts."""
MIN_CHANCE = 0.05
"""Lower bound of the probability that a guess is correct."""


class SuccessRate:
    """A smoothed success rate: a decaying average, drawn towards the long-run average.

    Args:
        prior: the rate before any outcome.
        weight: weight of the prior in the long-run average, and of that in the estimate.

    Attributes:
        count: outcomes recorded so far.
    """

    def __init__(self, prior: float, weight: float = PRIOR_WEIGHT) -> None:
        self.count = 0
        self._prior, self._weight = prior, weight
        self._successes = 0
        self._recent_successes = self._recent = 0.0

    def add(self, outcomes: Sequence[bool]) -> None:
        """Record outcomes, in order."""
        for outcome in outcomes:
            self._recent_successes = self._recent_successes * MEMORY + outcome
            self._recent = self._recent * MEMORY + 1
        self.count += len(outcomes)
        self._successes += sum(outcomes)

    @property
    def estimate(self) -> float:
        """The rate, strictly between 0 and 1."""
        long_run = (self._successes + self._weight * self._prior) / (self.count + self._weight)
        return (self._recent_successes + self._weight * long_run) / (self._recent + self._weight)


class Runs:
    """The probability that a guess is correct, by the number of correct ones in a row before it.

    The prior error rate after k correct guesses is (1 − accuracy) · w / (w + k), with w =
    `PRIOR_WEIGHT`. Answers differ in difficulty, so the error rate is scaled by the answer's recent
    errors relative to those expected.
    """

    def __init__(self, prior_accuracy: float) -> None:
        self._run = 0
        steps = np.arange(MAX_STRIDE)
        self._prior = PRIOR_WEIGHT * (1 - prior_accuracy) / (PRIOR_WEIGHT + steps)
        self._wrong = [0] * _BUCKETS
        self._seen = [0] * _BUCKETS
        self._recent_wrong = self._expected = 0.0

    def begin(self) -> None:
        """Start an answer."""
        self._run = 0
        self._recent_wrong = self._expected = 0.0

    def add(self, outcomes: Sequence[bool]) -> None:
        """Record whether guesses were correct, in order."""
        for right in outcomes:
            self._expected = self._expected * MEMORY + self._error_rate(self._run)
            self._recent_wrong = self._recent_wrong * MEMORY + (not right)
            bucket = _bucket(self._run)
            self._seen[bucket] += 1
            self._wrong[bucket] += not right
            self._run = self._run + 1 if right else 0

    def chances(self, longest: int) -> Floats:
        """P(at least n more guesses are correct in a row), for n = 0 … `longest`."""
        difficulty = (self._recent_wrong + ANSWER_WEIGHT) / (self._expected + ANSWER_WEIGHT)
        runs = range(self._run, self._run + longest)
        wrong = np.array([self._error_rate(run) for run in runs]) * difficulty
        return np.cumprod([1.0, *np.maximum(1 - wrong, MIN_CHANCE)], dtype=np.float64)

    def _error_rate(self, run: int) -> float:
        bucket, prior = _bucket(run), float(self._prior[min(run, len(self._prior) - 1)])
        return (self._wrong[bucket] + RUN_WEIGHT * prior) / (self._seen[bucket] + RUN_WEIGHT)


_BUCKETS = 6


def _bucket(run: int) -> int:
    """The bucket of a run's length: 0, 1, 2–3, 4–7, 8–15, or more."""
    return min(run.bit_length(), _BUCKETS - 1)
