"""Measuring V(n): the time of one verification by its number of rows, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

from engines.target import Target
from engines.tree import chain

WIDTHS = (1, 2, 4, 8, 16)
ROUNDS = 9


def verify_ms(target: Target, widths: Sequence[int] = WIDTHS) -> dict[str, float]:
    """Median milliseconds of verify and commit for each width, measured in turns.

    The target is left with an empty cache. Widths it cannot take are left out.
    """
    for _ in target.prefill(range(16)):
        pass
    length = len(target.tokens)
    times: dict[int, list[float]] = {rows: [] for rows in widths if rows <= target.max_rows}
    for _ in range(ROUNDS):
        for rows, kept in times.items():
            tree = chain(1, list(range(2, rows + 1)), source=1)
            started = perf_counter()
            target.verify(tree)
            target.commit([0])
            kept.append(1e3 * (perf_counter() - started))
            target.rewind(length)
    target.rewind(0)
    return {str(rows): round(median(kept), 3) for rows, kept in times.items()}
