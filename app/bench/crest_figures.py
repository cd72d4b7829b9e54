"""The rows of `bench crest` for people: a table with the budgets side by side, and two charts."""

from __future__ import annotations

from collections.abc import Sequence

from app.bench.crest import BUDGETS, Row
from app.bench.plot import Chart, svg
from app.bench.table import table

COLUMNS = {
    "method": "",
    "selection": "",
    "MB": ".3f",
    "entries": "d",
    **{f"at {budget}": ".3f" for budget in BUDGETS},
    "MAR": ".3f",
    "lookup us": ".0f",
    "p99 us": ".0f",
    "build s": ".1f",
}


def as_table(rows: Sequence[Row]) -> str:
    """One line for each store: tokens per call at every budget; MAR at the largest."""
    lines = []
    for store in _stores(rows):
        last = store[-1]
        lines.append(
            {
                "method": last.method,
                "selection": last.selection,
                "MB": last.store_bytes / 1e6,
                "entries": last.entries,
                **{f"at {row.budget}": row.tokens_per_call for row in store},
                "MAR": last.mean_acceptance_rate,
                "lookup us": last.lookup_us_median,
                "p99 us": last.lookup_us_p99,
                "build s": last.build_seconds,
            }
        )
    return table(lines, COLUMNS)


def as_svg(rows: Sequence[Row]) -> str:
    """Accepted length against bytes (figures 6 to 9) and against the budget."""
    return svg([_by_bytes(rows), _by_budget(rows)])


def _by_bytes(rows: Sequence[Row]) -> Chart:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.store_bytes and row.budget == BUDGETS[-1]:
            # Parts of the history make one line of REST.
            kind = row.selection.split(", ")[-1] if row.method == "rest" else row.selection
            point = (float(row.store_bytes), row.tokens_per_call)
            lines.setdefault(f"{row.method}: {kind}", []).append(point)
    return Chart(
        f"Tokens per call, {BUDGETS[-1]} nodes",
        "bytes on disk",
        "tokens per call",
        {name: sorted(points) for name, points in lines.items()},
        logarithmic=True,
        unit="B",
    )


def _by_budget(rows: Sequence[Row]) -> Chart:
    """The best store of each method."""
    best: dict[str, list[Row]] = {}
    for store in _stores(rows):
        method = store[0].method
        if method not in best or store[-1].tokens_per_call > best[method][-1].tokens_per_call:
            best[method] = store
    return Chart(
        "Tokens per call, by budget",
        "draft tokens for each call",
        "tokens per call",
        {
            method: [(float(row.budget), row.tokens_per_call) for row in store]
            for method, store in best.items()
        },
    )


def _stores(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each store together, by budget."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.method, row.selection, row.store_bytes), []).append(row)
    return list(found.values())
