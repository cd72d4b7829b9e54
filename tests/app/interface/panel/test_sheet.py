"""Sheets draw what they are told, and only the lines that changed."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.geometry import Region

from app.interface.panel.panel import LineCanvas


class Recording(LineCanvas):
    """Notes which lines it asks to be drawn again."""

    drawn: list[int]

    def refresh(self, *regions: Region, **options: bool) -> Recording:
        if regions and hasattr(self, "drawn"):
            self.drawn += [region.y + self.content_offset.y for region in regions]
        super().refresh(*regions, **options)
        return self


class SheetApp(App[None]):
    CSS = "LineCanvas { padding: 1 2; width: 20; height: 8; }"

    def compose(self) -> ComposeResult:
        yield Recording()


async def test_only_changed_lines_are_drawn_and_where_they_stand() -> None:
    app = SheetApp()
    async with app.run_test() as pilot:
        sheet = app.query_one(Recording)
        sheet.show([Text("one"), Text("two"), Text("three")])
        await pilot.pause()
        sheet.drawn = []
        sheet.show([Text("one"), Text("2"), Text("three"), Text("four")])
        assert sheet.drawn == [2, 4]
        lines = [strip.text.rstrip() for strip in sheet.render_lines(Region(0, 0, 20, 8))]
        assert lines == ["", "  one", "  2", "  three", "  four", "", "", ""]


async def test_the_style_of_a_whole_line_is_drawn() -> None:
    app = SheetApp()
    async with app.run_test():
        sheet = app.query_one(Recording)
        sheet.show([Text("bold", style=Style(bold=True))])
        (line,) = sheet.render_lines(Region(0, 1, 20, 1))
        assert any(part.text == "bold" and part.style and part.style.bold for part in line)
