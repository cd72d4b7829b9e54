"""Warns when the water stands higher than predicted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

RAMP_FLOODS_M = 4.62
"""Height above chart datum at which the slipway ramp is under water, measured with a staff."""


class SurgeLevel(Enum):
    """What the duty officer has to do."""

    CALM = "nothing"
    WATCH = "look every hour"
    BARRIER = "close the flood gate at Pier Street"
    EVACUATE = "ring the siren, clear the fish hall"


def residual(measured: Sequence[float], predicted: Sequence[float]) -> list[float]:
    """Measured minus predicted heights."""
    return [real - table for real, table in zip(measured, predicted, strict=True)]


def surge_level(residuals: Sequence[float], next_high: float) -> SurgeLevel:
    """The level from the last hour's residuals and the next predicted high water.

    Expects ten residuals, six minutes apart. The highest expected water is the prediction plus the
    mean residual plus its growth within the hour.
    """
    mean = sum(residuals) / len(residuals)
    growth = max(0.0, residuals[-1] - residuals[0])
    expected = next_high + mean + growth
    if expected > RAMP_FLOODS_M + 0.75:
        return SurgeLevel.EVACUATE
    if expected > RAMP_FLOODS_M + 0.2:
        return SurgeLevel.BARRIER
    return SurgeLevel.WATCH if mean > 0.3 else SurgeLevel.CALM


def pager_text(level: SurgeLevel, expected: float) -> str:
    """At most 80 characters, capitals only: the pager of the harbour office has no others."""
    return f"SURGE {level.name} EXP {expected:.2f} M RAMP {RAMP_FLOODS_M:.2f} M"[:80]
