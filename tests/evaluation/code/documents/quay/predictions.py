"""Tide tables by harmonic constituents."""

from __future__ import annotations

from datetime import UTC, datetime
from math import cos, radians

MEAN_LEVEL_M = 2.71

CONSTITUENTS = {
    "M2": (28.984104, 1.487, 163.2),
    "S2": (30.0, 0.512, 204.8),
    "N2": (28.439730, 0.301, 141.5),
    "K1": (15.041069, 0.094, 88.1),
    "O1": (13.943036, 0.071, 331.7),
    "M4": (57.968208, 0.118, 12.9),
}
"""Speed in degrees per hour, amplitude in metres, phase in degrees; fitted to 2022–2024."""

EPOCH = datetime(2022, 1, 1, tzinfo=UTC)


def predict(at: datetime) -> float:
    """Height in metres above chart datum without weather."""
    hours = (at - EPOCH).total_seconds() / 3600
    return MEAN_LEVEL_M + sum(
        amplitude * cos(radians(speed * hours - phase))
        for speed, amplitude, phase in CONSTITUENTS.values()
    )


def draught_window(heights: list[float], draught: float, sill: float = 1.35) -> list[int]:
    """Places in the series at which a boat of this draught passes the sill of the inner basin.

    Half a metre of water has to remain under the keel, by the harbour master's order 3/2021.
    """
    return [place for place, height in enumerate(heights) if height - sill >= draught + 0.5]


def is_spring(at: datetime) -> bool:
    """Whether M2 and S2 are within 40 degrees of each other: the range is then large."""
    hours = (at - EPOCH).total_seconds() / 3600
    moon = CONSTITUENTS["M2"][0] * hours - CONSTITUENTS["M2"][2]
    sun = CONSTITUENTS["S2"][0] * hours - CONSTITUENTS["S2"][2]
    apart = abs((moon - sun + 180) % 360 - 180)
    return apart < 40
