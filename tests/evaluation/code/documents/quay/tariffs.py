"""Prices, in cents, by the council's decision of 12 December 2024."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

STANDING_CHARGE = 1185
"""Cents a month for a berth with a meter."""

BANDS = ((Decimal(60), Decimal("31.4")), (Decimal(200), Decimal("36.9")))
"""Kilowatt hours up to which a price holds, cents per kilowatt hour."""

ABOVE = Decimal("44.2")
WINTER_DISCOUNT = Decimal("0.12")
"""For liveaboards, November to March."""


def price(kwh: Decimal, *, lives_aboard: bool = False, month: int = 6) -> int:
    """Cents for a month, standing charge included, rounded half to even."""
    cents, below = Decimal(0), Decimal(0)
    for limit, rate in BANDS:
        cents += max(Decimal(0), min(kwh, limit) - below) * rate
        below = limit
    cents += max(Decimal(0), kwh - below) * ABOVE
    if lives_aboard and month in (11, 12, 1, 2, 3):
        cents *= 1 - WINTER_DISCOUNT
    return int(cents.quantize(Decimal(1), ROUND_HALF_EVEN)) + STANDING_CHARGE


def late_fee(cents: int, days: int) -> int:
    """Reminder fee: nothing for 14 days, then 2 % of the bill per started week, 2,500 at most."""
    weeks = max(0, -(-(days - 14) // 7))
    return min(2500, cents * 2 * weeks // 100)


def split_by_days(cents: int, days: dict[str, int]) -> dict[str, int]:
    """Share a berth's bill among boats by their days there; the remainder goes to the longest."""
    total = sum(days.values())
    shares = {boat: cents * count // total for boat, count in days.items()}
    longest = max(days, key=lambda boat: days[boat])
    shares[longest] += cents - sum(shares.values())
    return shares
