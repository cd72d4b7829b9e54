"""The rows of a transcript near the screen, and which entry each belongs to.

Owns the window: the entries laid out, from `first` up to `last`. It grows at both ends as the
person scrolls, so that a chat of thousands of messages costs no more to open than what is seen of
it. Knows nothing of scrolling and widgets.

Draws the rows of a paper, line by line, with what is selected.

Owns lines: their look, their selection and its text. Which rows there are, and which of them are in
sight, is for who fills the page.

One widget draws all lines, because mounting widgets for each message and laying the screen out
again for each fragment takes most of a core.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import cell_len
from rich.style import Style
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from app.interface.transcript.entries import Entry
from app.interface.transcript.rows import Frame, Row
from app.interface.transcript.styles import make_styles


class LineView(ScrollView):
    """Rows, one to each line of a scrolling widget."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paper = RowWindow()
        self._frame: Frame | None = None

    @property
    def allow_select(self) -> bool:
        return True

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, without the detour through Textual's cache of styled borders."""
        base = self.rich_style
        top = self.scroll_offset.y
        selection = self.text_selection
        strips = [
            self._line(top + y, base, selection).crop_extend(crop.x, crop.right, base)
            for y in range(crop.y, crop.bottom)
        ]
        for line_filter in self.get_line_filters():
            ground = self.background_colors[1]
            strips = [strip.apply_filter(line_filter, ground) for strip in strips]
        return strips

    def _line(self, y: int, base: Style, selection: Selection | None) -> Strip:
        if self._frame is None or y >= len(self._paper.rows):
            return Strip.blank(self.size.width, base)
        row = self._paper.rows[y]
        if selection is None or (span := selection.get_span(y)) is None:
            return row.strip(self._frame, base, y)
        content = self._selected(row.text_strip(self._frame, base), *span)
        return Strip.join([row.edge(self._frame, base), content.apply_offsets(0, y)])

    def _selected(self, content: Strip, start: int, end: int) -> Strip:
        """`content` with its characters from `start` to `end` (-1: to the end) highlighted."""
        text = content.text.rstrip()
        left = cell_len(text[:start])
        right = cell_len(text if end < 0 else text[:end])
        if left >= right:
            return content
        style = self.screen.get_component_rich_style("screen--selection")
        before, selected, after = content.divide([left, right, content.cell_length])
        return Strip.join([before, selected.apply_style(style), after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, as its lines stand on the screen."""
        return selection.extract("\n".join(row.text for row in self._paper.rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def present_frame(self, *, tinted: bool) -> Frame:
        """What rows have to be laid out for now."""
        look = make_styles(
            self._style_of, self.background_colors[1], dark=self.app.current_theme.dark
        )
        return Frame(look, self.size.width, tinted)

    def _style_of(self, component: str) -> Style:
        """A component's style, with a ground only where it has one of its own."""
        style = self.get_component_rich_style(component)
        if style.bgcolor != self.rich_style.bgcolor:
            return style
        return Style(color=style.color, bold=style.bold, italic=style.italic)


class RowWindow:
    """Entries, and the rows of those laid out.

    Attributes:
        entries: all entries.
        rows: the rows of `entries[first:last]`.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rows: list[Row] = []
        self.first = 0
        self.last = 0
        self._starts: list[int] = []

    def show(self, entries: Sequence[Entry], at: int) -> None:
        """Take other entries, nothing laid out; the window will grow from entry `at`."""
        self.entries = list(entries)
        self.first = self.last = at
        self.rows, self._starts = [], []

    def grow_up(self, frame: Frame, rows: int) -> int:
        """Lay out entries above until `rows` rows came or the top is reached; how many came."""
        above: list[list[Row]] = []
        added = 0
        while added < rows and self.first > 0:
            self.first -= 1
            above.append(self.entries[self.first].rows(frame))
            added += len(above[-1])
        above.reverse()
        self.rows[:0] = [row for entry in above for row in entry]
        ends = list(accumulate(map(len, above), initial=0))
        self._starts = ends[:-1] + [start + added for start in self._starts]
        return added

    def grow_down(self, frame: Frame, rows: int) -> None:
        """Lay out entries below, until at least `rows` rows came or the end is reached."""
        wanted = len(self.rows) + rows
        while len(self.rows) < wanted and self.last < len(self.entries):
            self._starts.append(len(self.rows))
            self.rows += self.entries[self.last].rows(frame)
            self.last += 1

    def update(self, entry: Entry, frame: Frame) -> range:
        """Lay `entry` out again; returns the rows that look different now."""
        index = self._index(entry)
        if index is None:
            return range(0)
        start, end = self._starts[index], self._end(index)
        old, new = self.rows[start:end], entry.rows(frame)
        same = next(
            (
                row
                for row, (a, b) in enumerate(zip(old, new, strict=False))
                if a is not b and a != b
            ),
            min(len(old), len(new)),
        )
        self.rows[start + same : end] = new[same:]
        grown = len(new) - len(old)
        for later in range(index + 1, len(self._starts)):
            self._starts[later] += grown
        return range(start + same, len(self.rows) if grown else start + len(new))

    def lay_out_again(self, frame: Frame) -> None:
        """Lay the whole window out for another frame."""
        laid_out = [entry.rows(frame) for entry in self.entries[self.first : self.last]]
        self.rows = [row for rows in laid_out for row in rows]
        self._starts = list(accumulate(map(len, laid_out), initial=0))[:-1]

    def at(self, row: int) -> tuple[Entry, int]:
        """The entry a row belongs to, and which of its rows it is."""
        index = bisect_right(self._starts, row) - 1
        return self.entries[self.first + index], row - self._starts[index]

    def start(self, entry: Entry) -> int | None:
        """The first row of `entry`; None where it is not laid out."""
        index = self._index(entry)
        return None if index is None else self._starts[index]

    def _index(self, entry: Entry) -> int | None:
        """The place of `entry` in the window, looked for from the end, where things change."""
        for index in range(self.last - 1, self.first - 1, -1):
            if self.entries[index] is entry:
                return index - self.first
        return None

    def _end(self, index: int) -> int:
        following = index + 1
        return self._starts[following] if following < len(self._starts) else len(self.rows)
