"""A widget that draws lines of text and nothing else, and draws again only the lines that changed.

Textual's Static lays its content out and styles every line at each update; what changes several
times a second should cost less.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Sheet(Widget):
    """Lines of text within the widget's padding."""

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._lines: list[Text] = []
        self._strips: dict[int, Strip] = {}

    def show(self, lines: Sequence[Text]) -> None:
        """Show other lines; the widget's height is its style's affair."""
        old, self._lines = self._lines, list(lines)
        top = self.styles.padding.top
        for row in range(max(len(old), len(self._lines))):
            if self._at(old, row) != self._at(self._lines, row):
                self._strips.pop(row + top, None)
                self.refresh(Region(0, row, self.content_size.width, 1))

    def forget(self) -> None:
        """Draw everything again: the colours or the size changed."""
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, composed once."""
        strips = []
        for y in range(crop.y, crop.bottom):
            if y not in self._strips:
                self._strips[y] = self._strip(y - self.styles.padding.top)
            strips.append(self._strips[y].crop(crop.x, crop.right))
        return strips

    def _strip(self, row: int) -> Strip:
        base = self.rich_style
        text = self._at(self._lines, row) or Text()
        drawn = Segment.apply_style(text.render(self.app.console), self._base_of(text))
        content = [Segment(" " * self.styles.padding.left), *drawn]
        strip = Strip(content).apply_style(base).adjust_cell_length(self.outer_size.width, base)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip

    def _base_of(self, text: Text) -> Style:
        """The style of a whole text, which Rich leaves to whoever prints it."""
        return self.app.console.get_style(text.style)

    @staticmethod
    def _at(lines: Sequence[Text], row: int) -> Text | None:
        return lines[row] if 0 <= row < len(lines) else None
