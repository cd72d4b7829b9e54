"""Who lies where: allocation of berths to visitors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class BerthPlace:
    """A berth: number, length and depth in metres, and whether it has a meter."""

    number: int
    length: float
    depth: float
    has_power: bool


@dataclass(frozen=True)
class VisitingBoat:
    """A visitor: name, length over all and draught in metres, and whether it wants power."""

    name: str
    length: float
    draught: float
    wants_power: bool = False


MARGIN_M = 1.2
"""Length that must remain free, for fenders and bad steering."""


def best_fit(boat: VisitingBoat, free: Iterable[BerthPlace]) -> BerthPlace | None:
    """The shortest free berth that takes the boat; berths with power only if it wants it, unless
    nothing else is left."""
    fitting = [
        berth
        for berth in free
        if berth.length >= boat.length + MARGIN_M
        and berth.depth >= boat.draught
        and (berth.has_power or not boat.wants_power)
    ]
    return min(
        fitting, key=lambda one: (one.has_power > boat.wants_power, one.length), default=None
    )


def waiting_order(boats: Iterable[tuple[VisitingBoat, int, bool]]) -> list[VisitingBoat]:
    """Boats in order of their turn: in distress first, then by minute of arrival.

    Each comes with the minute at which it called on channel 12 and whether it is in distress.
    """
    ranked = sorted(boats, key=lambda entry: (not entry[2], entry[1]))
    return [boat for boat, _, _ in ranked]
