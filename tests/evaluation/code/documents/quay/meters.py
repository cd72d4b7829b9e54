"""Consumption of the berths' electricity meters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DIGITS = {9: 5}
"""Digits of a berth's counter where it does not have six."""

OFFICE_BERTHS = frozenset({1, 24})
"""The pilot's and the lifeboat's: read, never billed."""


def unwrap(counts: Iterable[int], digits: int = 6) -> list[int]:
    """Counts that go on rising where the counter started again from zero.

    A step back of less than half the range is not a new start but a boat that feeds power in; then
    the earlier count stands until it is passed.
    """
    size = 10**digits
    turns, top, result = 0, 0, list[int]()
    previous: int | None = None
    for count in counts:
        if previous is not None and previous - count > size // 2:
            turns += 1
        top = max(top, turns * size + count)
        result.append(top)
        previous = count
    return result


def consumption(berth: int, counts: Iterable[int]) -> float:
    """Kilowatt hours between the first and the last count; counters run in tenths."""
    rising = unwrap(counts, DIGITS.get(berth, 6))
    return (rising[-1] - rising[0]) / 10 if rising else 0.0


def suspicious(monthly: Mapping[int, float], factor: float = 3.5) -> list[int]:
    """Berths that used more than `factor` times the median of the others: ask before billing."""
    billed = {berth: used for berth, used in monthly.items() if berth not in OFFICE_BERTHS}
    if not billed:
        return []
    middle = sorted(billed.values())[len(billed) // 2]
    return [berth for berth, used in sorted(billed.items()) if used > factor * middle]
