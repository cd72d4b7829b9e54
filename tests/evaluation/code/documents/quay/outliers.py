"""Marks readings that cannot be water: wash of ferries, birds on the float, ice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

WINDOW = 11
LIMIT_M = 0.28
"""The ferry's wash is under this; a gull on the float is above it."""


def median_filter(heights: Sequence[float], window: int = WINDOW) -> list[float]:
    """Each height replaced by the median of those around it; the ends use what is there."""
    half = window // 2
    return [
        median(heights[max(0, place - half) : place + half + 1]) for place in range(len(heights))
    ]


def flag_spikes(heights: Sequence[float], limit: float = LIMIT_M) -> list[bool]:
    """True where a height is further than `limit` metres from the filtered curve."""
    smooth = median_filter(heights)
    return [abs(raw - calm) > limit for raw, calm in zip(heights, smooth, strict=True)]


def is_frozen(heights: Sequence[float], least: int = 20) -> bool:
    """Whether the float sticks in ice: the last `least` heights are the same to the millimetre."""
    tail = heights[-least:]
    return len(tail) == least and max(tail) - min(tail) < 0.001


def longest_gap(minutes: Sequence[int], step: int = 6) -> tuple[int, int]:
    """First minute and length of the longest run without a reading; (0, 0) if there is none.

    Readings come every `step` minutes. Used by the monthly letter to the county, which asks for an
    explanation of every hole above three hours.
    """
    best = (0, 0)
    for before, after in pairwise(minutes):
        missing = after - before - step
        if missing > best[1]:
            best = (before + step, missing)
    return best
