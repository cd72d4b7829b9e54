"""The reading order of a PDF page with columns, by the rectangles of its text alone.

Some programs write a page line by line across its columns, which mixes the lines of two articles. A
gutter is a strip that hardly any text crosses, between columns whose lines are mostly full. Cells
of a table are not full, so its rows stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite
from statistics import median

MIN_GUTTER = 8.0
"""Width of a gutter in points, wider than a space in justified text."""
MAX_CROSSING = 0.35
"""Share of the lines that may cross a gutter: titles, footers, tables."""
MIN_LINES = 3
MIN_WIDTH = 60.0
"""Size of a column in lines and points; narrower ones hold numbers and names."""
FULL_LINE, MIN_FULL_LINES = 0.7, 0.5
"""Share of its column's width that a full line has, and share of lines that are full."""
MAX_BOXES, MAX_EXTENT = 5_000, 20_000.0
"""Pieces on a page and its width in points above which it is taken for a drawing."""


@dataclass(frozen=True, slots=True)
class TextBox:
    """A piece of a line, in points from the lower left corner; `number` is its rank in the file."""

    left: float
    bottom: float
    right: float
    top: float
    number: int = 0

    def is_finite(self) -> bool:
        return all(map(isfinite, (self.left, self.bottom, self.right, self.top)))

    @property
    def height(self) -> float:
        return self.top - self.bottom


def reading_order(boxes: Sequence[TextBox]) -> list[list[TextBox]]:
    """The lines of a page, column by column, each from left to right.

    Empty if the page has no columns, or the file already has their order.
    """
    if len(boxes) > MAX_BOXES or not all(map(TextBox.is_finite, boxes)):
        return []
    columns = _columns(boxes)
    numbers = [[box.number for box in column] for column in columns]
    if all(max(first) < min(second) for first, second in pairwise(numbers)):
        return []
    return [line for column in columns for line in _lines(column)]


def _columns(boxes: Sequence[TextBox]) -> list[list[TextBox]]:
    """The boxes of each column in turn; each line that crosses a gutter is a column of its own."""
    gutter = _gutter(boxes)
    if gutter is None:
        return [list(boxes)] if boxes else []
    start, end = gutter
    middle = (start + end) / 2
    crossing = [box for box in boxes if box.left < start and box.right > end]
    sides = [box for box in boxes if not (box.left < start and box.right > end)]
    found = []
    for spanning in [*_lines(crossing), []]:
        floor = max((box.bottom for box in spanning), default=float("-inf"))
        above = [box for box in sides if box.bottom >= floor]
        sides = [box for box in sides if box.bottom < floor]
        left = [box for box in above if box.right + box.left < 2 * middle]
        right = [box for box in above if box.right + box.left >= 2 * middle]
        found += [*_columns(left), *_columns(right), *([spanning] if spanning else [])]
    return found


def _gutter(boxes: Sequence[TextBox]) -> tuple[float, float] | None:
    """Left and right edge of the widest gutter."""
    if len(boxes) < 2 * MIN_LINES:
        return None
    lines = _lines(boxes)
    origin = min(box.left for box in boxes)
    extent = max(box.right for box in boxes) - origin
    if not extent < MAX_EXTENT:
        return None
    width = int(extent) + 2
    changes = [0] * (width + 1)
    for box in boxes:
        changes[int(box.left - origin)] += 1
        changes[int(box.right - origin) + 1] -= 1
    free = [ink <= MAX_CROSSING * len(lines) for ink in accumulate(changes[:width])]
    strips = sorted(_runs(free), key=lambda strip: strip[0] - strip[1])
    for start, end in strips:
        edges = origin + start, origin + end
        if end - start >= MIN_GUTTER and _is_gutter(boxes, *edges):
            return edges
    return None


def _runs(free: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of true values."""
    start = None
    for place, is_free in enumerate([*free, False]):
        if is_free and start is None:
            start = place
        elif not is_free and start is not None:
            yield start, place
            start = None


def _is_gutter(boxes: Sequence[TextBox], start: float, end: float) -> bool:
    """Whether prose stands on both sides at the same height."""
    sides = [box for box in boxes if box.right <= end], [box for box in boxes if box.left >= start]
    lines = [_lines(side) for side in sides]
    if not all(len(side) >= MIN_LINES and _is_prose(side) for side in lines):
        return False
    tops = [max(box.top for box in side) for side in sides]
    bottoms = [min(box.bottom for box in side) for side in sides]
    shared = min(tops) - max(bottoms)
    return shared >= 0.5 * min(top - bottom for top, bottom in zip(tops, bottoms, strict=True))


def _is_prose(lines: Sequence[Sequence[TextBox]]) -> bool:
    widths = [max(box.right for box in line) - min(box.left for box in line) for line in lines]
    full = sum(width >= FULL_LINE * max(widths) for width in widths)
    return max(widths) >= MIN_WIDTH and full >= MIN_FULL_LINES * len(lines)


def _lines(boxes: Sequence[TextBox]) -> list[list[TextBox]]:
    """The boxes of each line from left to right, the topmost line first."""
    lines: list[list[TextBox]] = []
    for box in sorted(boxes, key=lambda box: -(box.top + box.bottom)):
        last = lines[-1][0] if lines else None
        if last is not None and (box.top + box.bottom) / 2 > last.bottom:
            lines[-1].append(box)
        else:
            lines.append([box])
    return [sorted(line, key=lambda box: box.left) for line in lines]


def is_joined(first: TextBox, second: TextBox) -> bool:
    """Whether two boxes of a line touch, like letters of a word."""
    return second.left - first.right < 0.15 * median([first.height, second.height])
