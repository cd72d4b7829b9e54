"""Estimates how long idle work will still take, from its speed so far.

Sees only how much of the work is done, and when.
"""

from __future__ import annotations

MIN_SECONDS = 3.0
"""Work that must have been seen before there is an estimate."""
MAX_GAP_S = 5.0
"""A longer time without progress was a pause: a question, or other work."""
HALF_LIFE_S = 60.0
"""Seconds of work after which what was seen before counts half."""


class RemainingTime:
    """Estimates the time left of one job."""

    def __init__(self) -> None:
        self._units = self._seconds = 0.0
        self._last: tuple[float, float] | None = None

    def update(self, done: float, total: float, now: float) -> float | None:
        """Seconds left when `done` of `total` is done at `now`, of a clock; None while unknown.

        Less than before was done: another job has begun.
        """
        if self._last is not None:
            units, seconds = done - self._last[0], now - self._last[1]
            if units < 0:
                self._units = self._seconds = 0.0
            elif seconds <= MAX_GAP_S:
                kept = 0.5 ** (seconds / HALF_LIFE_S)
                self._units = self._units * kept + units
                self._seconds = self._seconds * kept + seconds
        self._last = done, now
        if self._seconds < MIN_SECONDS or self._units <= 0:
            return None
        return max(0.0, total - done) * self._seconds / self._units
