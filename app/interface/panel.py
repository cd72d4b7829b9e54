"""The acceptance panel: how much faster, and whose words these were; always in sight.

A footer on narrow screens, a column on wide ones. Owns when it is drawn again; what it says stands
in `wording.py`, how it is laid out in `footer.py`, `column.py` and `detail.py`.
"""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.reactive import var

from app.figures import Figures
from app.interface.colours import ink_of, inks
from app.interface.column import column
from app.interface.detail import beside
from app.interface.footer import footer
from app.interface.ink import Ink
from app.interface.keys import keys_of
from app.interface.sheet import Sheet


class Panel(Sheet):
    """Shows `figures`; call `redraw` when they have changed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = inks("panel")

    detailed: var[bool] = var(False, init=False)
    """Whether raw figures are shown too."""

    def __init__(self, figures: Figures, *, wide: bool) -> None:
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
        if self.detailed and self.figures.outlook is not None:
            lines += [Text(), *beside(self.figures, width, ink)]
        return lines

    def _ink(self) -> Ink:
        hint = keys_of(self).fill("{panel} more")
        return ink_of(self, "panel", Style(color=self.rich_style.color), hint)
