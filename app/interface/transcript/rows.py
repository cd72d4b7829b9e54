"""Rows of the transcript: one line of an entry, with what stands in the gutter beside it.

Owns how a row is composed to the full width. The gutter is no part of the text: what is selected
and copied is the content alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from app.interface.transcript.styles import Line, Styles

GUTTER = 2
"""Columns of the gutter, in which the bar beside a question stands."""

MAX_TEXT_COLUMNS = 96
"""Columns of text at most: longer lines are hard to read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What rows are laid out for.

    Attributes:
        look: the styles.
        available: columns of the whole widget.
        tinted: whether answers show the source of each word.
    """

    look: Styles
    available: int
    tinted: bool = False

    @property
    def width(self) -> int:
        """Columns of text."""
        return max(8, min(self.available - 2 * GUTTER, MAX_TEXT_COLUMNS))

    @property
    def margin(self) -> int:
        """Columns left of the gutter: narrow text stands in the middle of a wide widget."""
        return max(0, (self.available - self.width) // 2 - GUTTER)


@dataclass(slots=True)
class Row:
    """One line: its content, the bar in its gutter, and the ground it stands on."""

    content: Line
    bar: Segment | None = None
    ground: Style | None = None
    _strip: Strip | None = field(default=None, compare=False)
    _y: int = field(default=-1, compare=False)

    @property
    def text(self) -> str:
        """The content as plain text."""
        return "".join(part.text for part in self.content).rstrip()

    def strip(self, frame: Frame, base: Style, y: int) -> Strip:
        """The row over the whole width, as line `y` of the transcript; kept once composed."""
        if self._strip is None or self._y != y:
            content = self.text_strip(frame, base).apply_offsets(0, y)
            strip = Strip.join([self.edge(frame, base), content])
            self._strip = strip.adjust_cell_length(frame.available, base)
            self._y = y
        return self._strip

    def text_strip(self, frame: Frame, base: Style) -> Strip:
        """The content over the full text width, without margin and gutter."""
        ground = base + self.ground if self.ground else base
        return Strip(self.content).adjust_cell_length(frame.width, ground).apply_style(ground)

    def edge(self, frame: Frame, base: Style) -> Strip:
        """Margin and gutter."""
        ground = base + self.ground if self.ground else base
        bar = self.bar or Segment(" ")
        style = ground + bar.style if bar.style else ground
        return Strip(
            [
                Segment(" " * frame.margin, base),
                Segment(bar.text, style),
                Segment(" " * (GUTTER - 1), ground),
            ]
        )


def rows_of(lines: Iterable[Line]) -> list[Row]:
    """Plain rows."""
    return [Row(line) for line in lines]
