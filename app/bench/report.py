"""Figures of benchmarks as line charts, in SVG; two axes need no library.

The charts of `bench crest` and `bench growth` are at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import accumulate
from math import ceil, floor, log10
from typing import Any

from app.bench.crest import BUDGETS, REST, CrestRow
from app.cli.output import table

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 760, 436
LEFT, RIGHT, TOP, BOTTOM = 60, 310, 46, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, distinct for colour-blind readers."""
TICKS = 6


@dataclass(frozen=True, slots=True)
class Chart:
    """Several lines over the same axes.

    Attributes:
        lines: name → points, ascending in x.
        logarithmic: makes the x axis so; its values must then be positive.
        unit: of the x axis; "B" shows bytes as KB, MB, GB.
    """

    title: str
    across: str
    up: str
    lines: Mapping[str, Points]
    logarithmic: bool = False
    unit: str = ""


def svg(charts: Sequence[Chart]) -> str:
    """One picture, the charts below each other."""
    height = HEIGHT * len(charts)
    body = "".join(
        f'<g transform="translate(0 {HEIGHT * index})">{_chart(chart)}</g>'
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def ticks(low: float, high: float) -> list[float]:
    """About `TICKS` round numbers that span [low, high]."""
    if high <= low:
        high = low + 1.0
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(floor(low / step), ceil(high / step) + 1)]


def _chart(chart: Chart) -> str:
    xs = [x for points in chart.lines.values() for x, _ in points] or [1.0]
    ys = [y for points in chart.lines.values() for _, y in points] or [1.0]
    marks = _powers(xs) if chart.logarithmic else ticks(min(xs), max(xs))
    rises = ticks(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        return _across(x, marks, chart.logarithmic), _up(y, rises)

    parts = [_text(WIDTH / 2 - RIGHT / 2, 18, chart.title, anchor="middle", weight="bold")]
    for mark in marks:
        x = _across(mark, marks, chart.logarithmic)
        parts.append(_line(x, TOP, x, HEIGHT - BOTTOM))
        parts.append(_text(x, HEIGHT - BOTTOM + 16, _number(mark, chart.unit), anchor="middle"))
    for rise in rises:
        y = _up(rise, rises)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y))
        parts.append(_text(LEFT - 6, y + 4, _number(rise, ""), anchor="end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, chart.across, anchor="middle"))
    parts.append(_text(LEFT, TOP - 8, chart.up))
    for index, (name, points) in enumerate(chart.lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        dash = "" if index < len(COLOURS) else ' stroke-dasharray="5 3"'
        spots = [place(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        parts.append(_legend(index, name, colour, dash))
    return "".join(parts)


def _legend(index: int, name: str, colour: str, dash: str) -> str:
    """A legend entry with a sample of its line: each colour occurs solid and dashed."""
    x, y = WIDTH - RIGHT + 14, TOP + 10 + 16 * index
    piece = f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2"{dash}/>'
    return piece + _text(x + 28, y, name, colour=colour)


def _powers(xs: Sequence[float]) -> list[float]:
    """Powers of ten that span `xs`."""
    low, high = floor(log10(min(xs))), ceil(log10(max(xs)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _across(x: float, marks: Sequence[float], logarithmic: bool) -> float:
    low, high = marks[0], marks[-1]
    share = log10(x / low) / log10(high / low) if logarithmic else (x - low) / (high - low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _up(y: float, rises: Sequence[float]) -> float:
    share = (y - rises[0]) / (rises[-1] - rises[0])
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _number(value: float, unit: str) -> str:
    if unit == "B":
        for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
            if value >= factor:
                return f"{value / factor:g} {name}"
    return f"{value:g}{' ' + unit if unit else ''}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#ddd"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "", colour: str = "#222"
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{bold}>'
        f"{escape(text)}</text>"
    )


COLUMNS = {
    "method": "",
    "selection": "",
    "store_bytes": ",",
    "entries": "d",
    **{f"at {budget}": ".3f" for budget in BUDGETS},
    "mean_acceptance_rate": ".3f",
    "lookup_us_median": ".0f",
    "lookup_us_p99": ".0f",
    "build_seconds": ".1f",
}


def crest_table(rows: Sequence[CrestRow]) -> str:
    """One line for each store: tokens per step at every budget; MAR at the largest."""
    lines = [
        {**asdict(store[-1]), **{f"at {row.budget}": row.tokens_per_step for row in store}}
        for store in _stores(rows)
    ]
    return table(lines, COLUMNS)


def crest_svg(rows: Sequence[CrestRow]) -> str:
    """Accepted length against bytes (figures 6 to 9) and against the budget."""
    return svg([_by_bytes(rows), _by_budget(rows)])


def _by_bytes(rows: Sequence[CrestRow]) -> Chart:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.store_bytes and row.budget == BUDGETS[-1]:
            name = REST if row.method == REST else f"{row.method}: {row.selection}"
            point = (float(row.store_bytes), row.tokens_per_step)
            lines.setdefault(name, []).append(point)
    return Chart(
        f"Tokens per step, {BUDGETS[-1]} nodes",
        "bytes on disk",
        "tokens per step",
        {name: sorted(points) for name, points in lines.items()},
        logarithmic=True,
        unit="B",
    )


def _by_budget(rows: Sequence[CrestRow]) -> Chart:
    """The best store of each method."""
    best: dict[str, list[CrestRow]] = {}
    for store in _stores(rows):
        method = store[0].method
        if method not in best or store[-1].tokens_per_step > best[method][-1].tokens_per_step:
            best[method] = store
    return Chart(
        "Tokens per step, by budget",
        "draft tokens for each step",
        "tokens per step",
        {
            method: [(float(row.budget), row.tokens_per_step) for row in store]
            for method, store in best.items()
        },
    )


def _stores(rows: Sequence[CrestRow]) -> list[list[CrestRow]]:
    """The rows of each store together, by budget."""
    found: dict[tuple[str, str, int], list[CrestRow]] = {}
    for row in rows:
        found.setdefault((row.method, row.selection, row.store_bytes), []).append(row)
    return list(found.values())


LINES = {
    "tokens_per_step": "{}",
    "tokens_per_step_empty": "{}, empty stores",
    "tokens_per_step_new": "{}, new questions",
}
SPEEDS = {"speedup": "{}", "speedup_empty": "{}, empty stores"}
"""Keys and labels of the lines, in the same order in both charts, so that colours agree."""


def growth_svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """Two charts of the rows that `app.bench.growth.summarise_growth` gives."""
    return svg(
        [
            Chart("Growth", "chats so far", "tokens per step", _lines(rows, LINES)),
            Chart("", "chats so far", "times as fast as plain decoding", _lines(rows, SPEEDS)),
        ]
    )


def _lines(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, Points]:
    """A line for each set of drafters and figure; each window is drawn at its end."""
    return {
        label.format(row["drafters"]): _points(row["windows"], key)
        for key, label in labels.items()
        for row in rows
    }


def _points(windows: Sequence[Mapping[str, Any]], key: str) -> Points:
    ends = accumulate(window["chats"] for window in windows)
    values = [window[key] for window in windows]
    return [(end, value) for end, value in zip(ends, values, strict=True) if value is not None]
