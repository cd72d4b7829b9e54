"""The widget of the acceptance panel: a footer on narrow screens, a column on wide ones.

It redraws only lines that changed: Textual's Static lays out and styles every line at each update,
which costs too much several times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.reactive import var
from textual.strip import Strip
from textual.widget import Widget

from app.conversation.session_statistics import SessionStatistics
from app.interface.keymap import keymap_of
from app.interface.panel.details import details_side_by_side
from app.interface.panel.layout import column, footer
from app.interface.themes import PanelStyles, panel_styles, style_classes


class LineCanvas(Widget):
    """Draws lines of text within the widget's padding."""

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._lines: list[Text] = []
        self._strips: dict[int, Strip] = {}

    def show(self, lines: Sequence[Text]) -> None:
        """Show `lines`; the height of the widget is not changed."""
        old, self._lines = self._lines, list(lines)
        top = self.styles.padding.top
        for row in range(max(len(old), len(self._lines))):
            if self._line_at(old, row) != self._line_at(self._lines, row):
                self._strips.pop(row + top, None)
                self.refresh(Region(0, row, self.content_size.width, 1))

    def redraw_all(self) -> None:
        """Redraw every line, after a change of colours or size."""
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`; each line is composed once."""
        strips = []
        for y in range(crop.y, crop.bottom):
            if y not in self._strips:
                self._strips[y] = self._strip(y - self.styles.padding.top)
            strips.append(self._strips[y].crop(crop.x, crop.right))
        return strips

    def _strip(self, row: int) -> Strip:
        base = self.rich_style
        text = self._line_at(self._lines, row) or Text()
        drawn = Segment.apply_style(text.render(self.app.console), self._base_style(text))
        content = [Segment(" " * self.styles.padding.left), *drawn]
        strip = Strip(content).apply_style(base).adjust_cell_length(self.outer_size.width, base)
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip

    def _base_style(self, text: Text) -> Style:
        """The style of the text as a whole, which `Text.render` does not apply."""
        return self.app.console.get_style(text.style)

    @staticmethod
    def _line_at(lines: Sequence[Text], row: int) -> Text | None:
        return lines[row] if 0 <= row < len(lines) else None


class Panel(LineCanvas):
    """Shows the statistics of the session."""

    COMPONENT_CLASSES: ClassVar[set[str]] = style_classes("panel")

    detailed: var[bool] = var(False, init=False)
    """Whether the detailed figures are shown."""

    def __init__(self, stats: SessionStatistics, *, wide: bool) -> None:
        super().__init__(classes="-column" if wide else "-footer")
        self.stats = stats
        self.wide = wide

    def redraw(self) -> None:
        """Show the current statistics without laying out the rest of the screen."""
        if not self.display or not self.size.width:  # its height is 0 before the first answer
            return
        lines = self._lay_out()
        if not self.wide:
            self.styles.height = len(lines)
        self.show(lines)

    def watch_detailed(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.redraw_all()
        self.redraw()

    async def on_click(self, event: events.Click) -> None:
        """Show or hide the details where the hint at the end is clicked."""
        place, hint = event.get_content_offset(self), self._panel_styles().hint
        line = self._line_at(self._lines, place.y) if place is not None else None
        at = line.plain.find(hint) if line is not None else -1
        if place is not None and hint and at >= 0 and place.x in range(at, at + len(hint)):
            await self.run_action("screen.command('panel')")

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.redraw_all()
            self.redraw()

    def _lay_out(self) -> list[Text]:
        width, height = self.content_size
        styles = self._panel_styles()
        if self.wide:
            return column(self.stats, width, height, styles, detailed=self.detailed)
        short = self.screen.has_class("-short")
        lines = footer(self.stats, width, styles, short=short)
        if self.detailed and self.stats.budget_status is not None:
            lines += [Text(), *details_side_by_side(self.stats, width, styles)]
        return lines

    def _panel_styles(self) -> PanelStyles:
        hint, larger = map(keymap_of(self).fill, ("{panel} more", "{models}"))
        return panel_styles(self, "panel", Style(color=self.rich_style.color), hint, larger)
