"""The acceptance panel: how much faster, and whose words these were; always in sight.

A footer on narrow screens, a column on wide ones. Owns when it is drawn again; what it says stands
in `wording.py`, how it is laid out in `footer.py`, `column.py` and `detail.py`.

A widget that draws lines of text and nothing else, and draws again only the lines that changed.

Textual's Static lays its content out and styles every line at each update; what changes several
times a second should cost less.

The raw figures behind the acceptance panel, for those who ask for more. Pure layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.reactive import var
from textual.strip import Strip
from textual.widget import Widget

from app.conversation.session_statistics import SessionStatistics
from app.interface.commands.keymap import keys_of
from app.interface.panel.column import column
from app.interface.panel.details import beside
from app.interface.panel.drawing import PanelStyles
from app.interface.panel.footer import footer
from app.interface.themes import panel_styles, style_classes


class LineCanvas(Widget):
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


class Panel(LineCanvas):
    """Shows `figures`; call `redraw` when they have changed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = style_classes("panel")

    detailed: var[bool] = var(False, init=False)
    """Whether raw figures are shown too."""

    def __init__(self, figures: SessionStatistics, *, wide: bool) -> None:
        super().__init__(classes="-column" if wide else "-footer")
        self.figures = figures
        self.wide = wide

    def redraw(self) -> None:
        """Draw what the figures say now; the rest of the screen stays as it is."""
        if not self.display or not self.size:
            return
        lines = self._laid_out()
        if not self.wide:
            self.styles.height = len(lines)
        self.show(lines)

    def watch_detailed(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.forget()
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.forget()
            self.redraw()

    def _laid_out(self) -> list[Text]:
        width, height = self.content_size
        ink = self._ink()
        if self.wide:
            return column(self.figures, width, height, ink, detailed=self.detailed)
        lines = footer(self.figures, width, ink)
        if self.detailed and self.figures.budget_status is not None:
            lines += [Text(), *beside(self.figures, width, ink)]
        return lines

    def _ink(self) -> PanelStyles:
        hint = keys_of(self).fill("{panel} more")
        return panel_styles(self, "panel", Style(color=self.rich_style.color), hint)
