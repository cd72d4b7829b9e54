"""Draws the rows of a paper, line by line, with what is selected.

Owns lines: their look, their selection and its text. Which rows there are, and which of them are in
sight, is for who fills the page.

One widget draws all lines, because mounting widgets for each message and laying the screen out
again for each fragment takes most of a core.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from app.interface.look import make_look
from app.interface.paper import Paper
from app.interface.rows import Frame


class Page(ScrollView):
    """Rows, one to each line of a scrolling widget."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paper = Paper()
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
        look = make_look(
            self._style_of, self.background_colors[1], dark=self.app.current_theme.dark
        )
        return Frame(look, self.size.width, tinted)

    def _style_of(self, component: str) -> Style:
        """A component's style, with a ground only where it has one of its own."""
        style = self.get_component_rich_style(component)
        if style.bgcolor != self.rich_style.bgcolor:
            return style
        return Style(color=style.color, bold=style.bold, italic=style.italic)
