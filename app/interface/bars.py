"""Bars and sparklines out of characters. Pure functions; no colours, no widgets."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
NOTHING = "·"
"""Where a sparkline has no value."""

_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` columns, exact to an eighth; empty only at 0."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, part = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[part].strip()


def sparkline(values: Sequence[float], floor: float) -> str:
    """One character for each value, from `floor` to the largest; `NOTHING` for 0, no value."""
    top = max([*values, floor * 2])
    return "".join(
        _level((value - floor) / (top - floor)) if value else NOTHING for value in values
    )


def widths(shares: Sequence[float], width: int) -> list[int]:
    """Whole columns for `shares` of `width`: together as near as can be, none empty.

    Largest remainders: what rounding down leaves over goes where it was missed most.
    """
    exact = [share * width for share in shares]
    columns = [max(1, int(value)) for value in exact]
    left = round(sum(exact)) - sum(columns)
    by_need = sorted(range(len(exact)), key=lambda index: columns[index] - exact[index])
    for index in by_need[: max(left, 0)]:
        columns[index] += 1
    return columns


def _level(share: float) -> str:
    return _LEVELS[min(max(int(share * len(_LEVELS)), 0), len(_LEVELS) - 1)]
