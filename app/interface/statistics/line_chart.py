"""A curve with marks, drawn with braille characters of two by four dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from rich.style import Style
from rich.text import Text

from app.interface.statistics.column_chart import AXIS_COLUMNS, Frame

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a braille character: left and right column, each from the top down."""
BRAILLE = 0x2800
DOT_COLUMNS, DOT_ROWS = 2, 4
MARK = "┊"
GRID = 10
"""The axis begins and ends at multiples of 1 / GRID."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at the value with this index."""

    index: int
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares over time.

    Attributes:
        values: at least one, each from 0 to 1.
        ends: labels below the first and the last value.
    """

    values: Sequence[float]
    ends: tuple[str, str]
    marks: Sequence[Mark]


def line_chart(curve: Curve, frame: Frame, line: Style, mark: Style) -> list[Text]:
    """`frame.height` lines and one or two of labels, each of at most `frame.width` columns."""
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
    """Round shares just below and above `values`, so that small changes are visible."""
    low = floor(min(values) * GRID + 1e-9) / GRID
    high = ceil(max(values) * GRID - 1e-9) / GRID
    if low < high:
        return low, high
    return (low, low + 1 / GRID) if low < 1 else (1 - 1 / GRID, 1.0)


def _cells(
    values: Sequence[float], columns: int, height: int, low: float, high: float
) -> list[list[int]]:
    """The dots of each cell, rows from the top: one per dot column, joined by vertical lines."""
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
    """The value at `place`, from 0 (the first) to 1 (the last), interpolated linearly."""
    exact = place * (len(values) - 1)
    index = min(int(exact), max(0, len(values) - 2))
    following = values[min(index + 1, len(values) - 1)]
    return values[index] + (exact - index) * (following - values[index])


def _column(index: int, count: int, columns: int) -> int:
    """The column of the value at `index`."""
    return round(index / max(1, count - 1) * (columns - 1))


def _mark_labels(marks: dict[int, str], columns: int, style: Style) -> Text:
    """The labels at their marks; one that would touch a later label is left out."""
    labels = [" "] * columns
    free = columns
    for column in sorted(marks, reverse=True):
        start = min(column, columns - len(marks[column]))
        if start >= 0 and start + len(marks[column]) <= free:
            labels[start : start + len(marks[column])] = marks[column]
            free = start - 1
    return Text.assemble(" " * AXIS_COLUMNS, ("".join(labels), style))
