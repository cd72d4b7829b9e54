"""A curve drawn with braille characters, two dots by four to a cell, with marks. Pure drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from rich.style import Style
from rich.text import Text

from app.interface.statistics.column_chart import AXIS_COLUMNS, Frame

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a braille character: its left column from the top down, and its right one."""
BRAILLE = 0x2800
DOT_COLUMNS, DOT_ROWS = 2, 4
MARK = "┊"
GRID = 10
"""The axis begins and ends at multiples of 1 ÷ GRID."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one of the values, by its index."""

    index: int
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares over time.

    Attributes:
        values: at least one, each from 0 to 1.
        ends: what is written below the first and the last.
    """

    values: Sequence[float]
    ends: tuple[str, str]
    marks: Sequence[Mark]


def line_chart(curve: Curve, frame: Frame, line: Style, mark: Style) -> list[Text]:
    """`frame.height` lines, and one or two of labels, each of at most `frame.width` columns."""
    columns = max(2, frame.width - AXIS_COLUMNS)
    low, high = axis_ends(curve.values)
    cells = _cells(curve.values, columns, frame.height, low, high)
    marks = {_column(one.index, len(curve.values), columns): one.label for one in curve.marks}
    lines = []
    for row, bits in enumerate(cells):
        value = {0: f"{high:.0%}", frame.height - 1: f"{low:.0%}"}.get(row, "")
        text = Text.assemble((f"{value:>{AXIS_COLUMNS - 2}} │", frame.axis))
        for column, dots in enumerate(bits):
            if dots:
                text.append(chr(BRAILLE | dots), style=line)
            else:
                text.append(MARK if column in marks else " ", style=mark)
        lines.append(text)
    if marks:
        lines.append(_mark_labels(marks, columns, mark))
    first, last = curve.ends
    space = max(1, columns - len(first) - len(last))
    ends = Text.assemble(" " * AXIS_COLUMNS, (f"{first}{' ' * space}{last}", frame.axis))
    lines.append(ends if last != first else ends[: AXIS_COLUMNS + len(first)])
    for text in lines:
        text.truncate(frame.width)
    return lines


def axis_ends(values: Sequence[float]) -> tuple[float, float]:
    """Round shares just below and above `values`, so that small changes are seen."""
    low = floor(min(values) * GRID + 1e-9) / GRID
    high = ceil(max(values) * GRID - 1e-9) / GRID
    if low < high:
        return low, high
    return (low, low + 1 / GRID) if low < 1 else (1 - 1 / GRID, 1.0)


def _cells(
    values: Sequence[float], columns: int, height: int, low: float, high: float
) -> list[list[int]]:
    """The dots of each cell, rows from the top: one dot in each column, joined by upright lines."""
    cells = [[0] * columns for _ in range(height)]
    last = columns * DOT_COLUMNS - 1
    previous: int | None = None
    for x in range(last + 1):
        share = (_at(values, x / last) - low) / (high - low)
        y = round((1.0 - share) * (height * DOT_ROWS - 1))
        for filled in range(min(y, y if previous is None else previous), max(y, previous or y) + 1):
            cells[filled // DOT_ROWS][x // DOT_COLUMNS] |= DOTS[x % DOT_COLUMNS][filled % DOT_ROWS]
        previous = y
    return cells


def _at(values: Sequence[float], place: float) -> float:
    """The value at `place`, 0 at the first and 1 at the last, on a line between neighbours."""
    exact = place * (len(values) - 1)
    index = min(int(exact), max(0, len(values) - 2))
    following = values[min(index + 1, len(values) - 1)]
    return values[index] + (exact - index) * (following - values[index])


def _column(index: int, count: int, columns: int) -> int:
    """The column of the value at `index`."""
    return round(index / max(1, count - 1) * (columns - 1))


def _mark_labels(marks: dict[int, str], columns: int, style: Style) -> Text:
    """Labels at their marks, the latest first: one that would touch a later one is left out."""
    labels = [" "] * columns
    free = columns
    for column in sorted(marks, reverse=True):
        start = min(column, columns - len(marks[column]))
        if start >= 0 and start + len(marks[column]) <= free:
            labels[start : start + len(marks[column])] = marks[column]
            free = start - 1
    return Text.assemble(" " * AXIS_COLUMNS, ("".join(labels), style))
