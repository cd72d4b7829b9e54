"""High and low waters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_RANGE_M = 0.35
"""Turns closer than this are waves, not tides."""


@dataclass(frozen=True)
class HighOrLow:
    """A turn of the tide: place in the series, height in metres, and whether it is a high one."""

    place: int
    metres: float
    is_high: bool


def find_turns(heights: Sequence[float], least: float = LEAST_RANGE_M) -> list[HighOrLow]:
    """Alternating high and low waters by hysteresis: a turn counts when the water has moved
    `least` metres away from it."""
    turns: list[HighOrLow] = []
    if not heights:
        return turns
    low = high = 0
    rising: bool | None = None
    for place, metres in enumerate(heights):
        if metres > heights[high]:
            high = place
        if metres < heights[low]:
            low = place
        if rising is not False and heights[high] - metres >= least:
            turns.append(HighOrLow(high, heights[high], True))
            rising, low = False, place
        elif rising is not True and metres - heights[low] >= least:
            turns.append(HighOrLow(low, heights[low], False))
            rising, high = True, place
    return turns


def parabola_top(before: float, middle: float, after: float, step: float) -> tuple[float, float]:
    """Time and height of the top of a parabola through three heights `step` apart.

    The gauges measure every six minutes; this finds the high water between two of them. The time is
    relative to the middle one.
    """
    bend = before - 2 * middle + after
    if bend == 0:
        return 0.0, middle
    shift = (before - after) / (2 * bend)
    return shift * step, middle - (before - after) * shift / 4


def mean_high_water(turns: Sequence[HighOrLow]) -> float:
    """Average of the high ones; raises ZeroDivisionError if there is none."""
    highs = [turn.metres for turn in turns if turn.is_high]
    return sum(highs) / len(highs)
