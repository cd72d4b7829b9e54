"""Corrections of gauges, each valid from a date.

The devices forget their own offsets when the battery is changed, so they live here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, datetime

from .parsing import TideReading

Offset = tuple[datetime, float]

OFFSETS: dict[str, list[Offset]] = {
    "north": [
        (datetime(2019, 5, 1, tzinfo=UTC), 1.902),
        (datetime(2023, 11, 14, tzinfo=UTC), 1.865),
    ],
    "south": [
        (datetime(2019, 5, 1, tzinfo=UTC), 2.087),
        (datetime(2024, 8, 2, tzinfo=UTC), 2.114),
    ],
}
"""Height of a gauge's zero above chart datum in metres, from a date on."""

THERMAL_MM_PER_KELVIN = 0.21
"""The steel tape of the south gauge grows with warmth; measured in summer 2024 with a lead line."""


def to_chart_datum(reading: TideReading) -> TideReading:
    """The reading in metres above chart datum, by the offset that was valid at its time."""
    return replace(reading, metres=reading.metres + zero_height(reading.gauge, reading.at))


def zero_height(gauge: str, at: datetime) -> float:
    """Raises ValueError for a time before the first survey of the gauge."""
    offsets = OFFSETS[gauge]
    place = bisect_right([since for since, _ in offsets], at)
    if place == 0:
        raise ValueError(f"{gauge} was not surveyed before {offsets[0][0]:%Y-%m-%d}")
    return offsets[place - 1][1]


def undo_tape_growth(metres: float, celsius: float) -> float:
    """Subtract what the tape has grown compared with 12 degrees, its temperature when surveyed."""
    return metres - (celsius - 12.0) * THERMAL_MM_PER_KELVIN / 1000
