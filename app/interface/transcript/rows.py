"""Rows of the transcript, and the window of entries that are laid out as rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from app.interface.transcript.plain_text import PlainText, Span, without_marks
from app.interface.transcript.styles import Line, Styles

GUTTER = 2
"""Width of the gutter, which holds the bar of a question and cannot be selected."""

MAX_TEXT_COLUMNS = 96
"""Longer lines are hard to read."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What rows are laid out for.

    Attributes:
        available: width of the widget.
        highlight_origins: whether answers show the origin of each word.
    """

    styles: Styles
    available: int
    highlight_origins: bool = False

    @property
    def width(self) -> int:
        """Width of the text."""
        return max(8, min(self.available - 2 * GUTTER, MAX_TEXT_COLUMNS))

    @property
    def margin(self) -> int:
        """Columns left of the gutter, which centre the text in a wide widget."""
        return max(0, (self.available - self.width) // 2 - GUTTER)


@dataclass(slots=True)
class Row:
    """One line: its content, the bar in its gutter, its background, and the texts it shows."""

    content: Line
    bar: Segment | None = None
    background: Style | None = None
    spans: tuple[Span, ...] = ()
    _strip: Strip | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The content as plain text."""
        return "".join(part.text for part in self.content).rstrip()

    def strip(self, layout: Layout, base: Style) -> Strip:
        """The row over the whole width; cached."""
        if self._strip is None:
            # Offsets keep Textual from merging its segments with those of the margin.
            content = self.text_strip(layout, base).apply_offsets(0, 0)
            strip = Strip.join([self.edge(layout, base), content])
            self._strip = strip.adjust_cell_length(layout.available, base)
        return self._strip

    def text_strip(self, layout: Layout, base: Style) -> Strip:
        """The content over the full text width, without margin and gutter."""
        style = base + self.background if self.background else base
        return Strip(self.content).adjust_cell_length(layout.width, style).apply_style(style)

    def edge(self, layout: Layout, base: Style) -> Strip:
        background = base + self.background if self.background else base
        bar = self.bar or Segment(" ")
        style = background + bar.style if bar.style else background
        return Strip(
            [
                Segment(" " * layout.margin, base),
                Segment(bar.text, style),
                Segment(" " * (GUTTER - 1), background),
            ]
        )


def rows_of(lines: Iterable[Line], spans: Iterable[tuple[Span, ...]]) -> list[Row]:
    """One row without bar and background for each line."""
    found = zip(lines, spans, strict=True)
    return [Row(without_marks(line), spans=shown) for line, shown in found]


class Entry(Protocol):
    """One part of the transcript: a question, an answer, the greeting."""

    @property
    def texts(self) -> Sequence[PlainText]:
        """What can be selected, as last laid out; the spans of the rows refer to it."""
        ...

    def rows(self, layout: Layout) -> list[Row]:
        """The entry laid out; unchanged rows are the same objects as before."""
        ...


class RowWindow:
    """All entries, and the rows of those near the screen: of `entries[first:last]`.

    The window grows at both ends as the person scrolls, so that opening a chat of thousands of
    messages costs no more than laying out the visible ones.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rows: list[Row] = []
        self.first = 0
        self.last = 0
        self._starts: list[int] = []

    def show(self, entries: Sequence[Entry], at: int) -> None:
        """Replace the entries; the window is empty and grows from entry `at`."""
        self.entries = list(entries)
        self.first = self.last = at
        self.rows, self._starts = [], []

    def grow_up(self, layout: Layout, rows: int) -> int:
        """Lay out entries above until at least `rows` rows are added; returns their number."""
        above: list[list[Row]] = []
        added = 0
        while added < rows and self.first > 0:
            self.first -= 1
            above.append(self.entries[self.first].rows(layout))
            added += len(above[-1])
        above.reverse()
        self.rows[:0] = [row for entry in above for row in entry]
        ends = list(accumulate(map(len, above), initial=0))
        self._starts = ends[:-1] + [start + added for start in self._starts]
        return added

    def grow_down(self, layout: Layout, rows: int) -> None:
        """Lay out entries below until at least `rows` rows are added, or no entries are left."""
        wanted = len(self.rows) + rows
        while len(self.rows) < wanted and self.last < len(self.entries):
            self._starts.append(len(self.rows))
            self.rows += self.entries[self.last].rows(layout)
            self.last += 1

    def update(self, entry: Entry, layout: Layout) -> range:
        """Lay `entry` out again; returns the rows to redraw."""
        index = self._index(entry)
        if index is None:
            return range(0)
        start, end = self._starts[index], self._end(index)
        old, new = self.rows[start:end], entry.rows(layout)
        pairs = enumerate(zip(old, new, strict=False))
        changed = (row for row, (a, b) in pairs if a is not b and a != b)
        same = next(changed, min(len(old), len(new)))
        self.rows[start + same : end] = new[same:]
        grown = len(new) - len(old)
        for later in range(index + 1, len(self._starts)):
            self._starts[later] += grown
        return range(start + same, len(self.rows) if grown else start + len(new))

    def lay_out_again(self, layout: Layout) -> None:
        """Lay the whole window out for another layout."""
        laid_out = [entry.rows(layout) for entry in self.entries[self.first : self.last]]
        self.rows = [row for rows in laid_out for row in rows]
        self._starts = list(accumulate(map(len, laid_out), initial=0))[:-1]

    def entry_at(self, row: int) -> tuple[Entry, int]:
        """The entry that `row` belongs to, and the row's index within it."""
        index = self.index_at(row)
        return self.entries[index], row - self._starts[index - self.first]

    def index_at(self, row: int) -> int:
        """The index of the entry that `row` belongs to."""
        return self.first + bisect_right(self._starts, row) - 1

    def first_row(self, entry: Entry) -> int | None:
        """The first row of `entry`; None if it is not laid out."""
        index = self._index(entry)
        return None if index is None else self._starts[index]

    def _index(self, entry: Entry) -> int | None:
        """The index of `entry` in the window, searched from the end, where entries change."""
        for index in range(self.last - 1, self.first - 1, -1):
            if self.entries[index] is entry:
                return index - self.first
        return None

    def _end(self, index: int) -> int:
        following = index + 1
        return self._starts[following] if following < len(self._starts) else len(self.rows)
