"""Estimates the remaining time of idle work from its speed so far."""

from __future__ import annotations

MIN_SECONDS = 3.0
"""Seconds of observed work before the first estimate."""
MAX_GAP_S = 5.0
"""A longer gap between updates is a pause, for an answer or other work."""
HALF_LIFE_S = 60.0
"""Seconds of work after which an observation counts half."""


class RemainingTime:
    """Estimates the remaining time of one job."""

    def __init__(self) -> None:
        self._units = self._seconds = 0.0
        self._last: tuple[float, float] | None = None

    def update(self, done: float, total: float, now: float) -> float | None:
        """Seconds left after `done` of `total` at clock time `now`; None while unknown.

        If `done` is less than before, another job has begun.
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
