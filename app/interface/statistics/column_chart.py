"""Stacked columns drawn with block characters, exact to an eighth of a line.

textual-plot 0.10.1 does not stack, and its plots take keys, the mouse and some ten rows each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app.interface.panel.drawing import LEVELS

AXIS_COLUMNS = 6
"""Width left of the chart: the largest value and the axis."""
MAX_BAR_COLUMNS = 6
"""Width of one bar; few values do not fill the whole width."""
MAX_NUMBER = AXIS_COLUMNS - 2
"""Characters of a number on the axis."""
MIN_VALUE = 1e-9
"""Smaller values count as 0."""
EIGHTHS = len(LEVELS)
STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Leading digits of the value at the top of the axis."""


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """One part of a column; `texture` is the character of the cells that it fills."""

    value: float
    style: Style
    texture: str = "█"


@dataclass(frozen=True, slots=True)
class Column:
    """One column, its parts from the bottom up; only the first and the last show their label."""

    label: str
    parts: tuple[ColumnPart, ...]

    @property
    def value(self) -> float:
        return sum(part.value for part in self.parts)


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a chart, and the style of its axis."""

    width: int
    height: int
    axis: Style


def column_chart(columns: Sequence[Column], frame: Frame, *, percent: bool = False) -> list[Text]:
    """`frame.height` lines of columns and one of labels, each of `frame.width` columns.

    If they do not all fit, the oldest are left out.
    """
    room = max(1, frame.width - AXIS_COLUMNS)
    shown = columns[-room:]
    top = axis_top(max((column.value for column in shown), default=0.0))
    slot = max(1, min(MAX_BAR_COLUMNS + 1, room // max(1, len(shown))))
    bar = slot - 1 if slot > 2 else slot
    lines = []
    for level in reversed(range(frame.height)):
        line = _axis(level, frame, top, percent)
        for column in shown:
            character, style = _cell(column, level, top / frame.height)
            line.append(character * bar, style=style)
            line.append(" " * (slot - bar))
        lines.append(line)
    return [*lines, _labels(shown, slot, frame)]


def axis_top(largest: float) -> float:
    """The value at the top of the axis: the next round number from `largest` up."""
    if largest < MIN_VALUE:
        return 1.0
    magnitude = 1.0
    while magnitude > largest:
        magnitude /= 10
    while magnitude * 10 < largest:
        magnitude *= 10
    return next(step * magnitude for step in STEPS if step * magnitude >= largest * (1 - 1e-9))


def short_number(value: float) -> str:
    """A round number in at most four characters: `5e-3`, `0.5`, `80`, `12k`, `1.5M`."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    number = f"{value:.2g}" if value < 1 else f"{value:.3g}"
    return number if len(number) <= MAX_NUMBER else f"{value:.0e}".replace("e-0", "e-")


def _axis(level: int, frame: Frame, top: float, percent: bool) -> Text:
    """The axis at one line, labelled only at the top and the bottom."""
    label = ""
    if level in (0, frame.height - 1):
        value = top if level else 0.0
        label = f"{value:.0%}" if percent else short_number(value)
    return Text.assemble((f"{label:>{AXIS_COLUMNS - 2}} │", frame.axis))


def _labels(shown: Sequence[Column], slot: int, frame: Frame) -> Text:
    """The labels of the first and the last column, the latter aligned to its end."""
    line = Text(" " * AXIS_COLUMNS)
    if not shown:
        return line
    line.append(shown[0].label, style=frame.axis)
    if len(shown) > 1:
        end = AXIS_COLUMNS + slot * len(shown)
        line.append(" " * max(1, end - line.cell_len - len(shown[-1].label)))
        line.append(shown[-1].label, style=frame.axis)
    line.truncate(frame.width)
    return line


def _cell(column: Column, level: int, unit: float) -> tuple[str, Style]:
    """Character and style of the cell `level` lines above the bottom; a line stands for `unit`."""
    filled: list[tuple[int, ColumnPart]] = []
    below = 0.0
    for part in column.parts:
        start, end = (_eighths(value, level, unit) for value in (below, below + part.value))
        below += part.value
        if end > start:
            filled.append((end - start, part))
    if not filled:
        return _sliver(column, level)
    height = sum(eighths for eighths, _ in filled)
    largest = max(filled, key=lambda one: one[0])[1]
    if height < EIGHTHS:
        return LEVELS[height - 1], largest.style
    eighths, lowest = filled[0]
    if eighths == EIGHTHS:
        return lowest.texture, lowest.style
    upper = max(filled[1:], key=lambda one: one[0])[1]
    return LEVELS[eighths - 1], lowest.style + Style(bgcolor=upper.style.color)


def _eighths(value: float, level: int, unit: float) -> int:
    """Number of eighths of line `level` that lie below `value`."""
    return min(max(round((value / unit - level) * EIGHTHS), 0), EIGHTHS)


def _sliver(column: Column, level: int) -> tuple[str, Style]:
    """Any value above 0 shows at least one eighth at the bottom."""
    if level or column.value <= 0:
        return " ", Style()
    return LEVELS[0], max(column.parts, key=lambda part: part.value).style
