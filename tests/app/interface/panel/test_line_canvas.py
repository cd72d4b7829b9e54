"""A line canvas draws its lines, and redraws only those that changed."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.geometry import Region

from app.interface.panel.panel import LineCanvas


class Recording(LineCanvas):
    """Records which lines are redrawn."""

    drawn: list[int]

    def refresh(self, *regions: Region, **options: bool) -> Recording:
        if regions and hasattr(self, "drawn"):
            self.drawn += [region.y + self.content_offset.y for region in regions]
        super().refresh(*regions, **options)
        return self


class CanvasApp(App[None]):
    CSS = "LineCanvas { padding: 1 2; width: 20; height: 8; }"

    def compose(self) -> ComposeResult:
        yield Recording()


async def test_only_changed_lines_are_redrawn_in_place() -> None:
    app = CanvasApp()
    async with app.run_test() as pilot:
        canvas = app.query_one(Recording)
        canvas.show([Text("one"), Text("two"), Text("three")])
        await pilot.pause()
        canvas.drawn = []
        canvas.show([Text("one"), Text("2"), Text("three"), Text("four")])
        assert canvas.drawn == [2, 4]
        lines = [strip.text.rstrip() for strip in canvas.render_lines(Region(0, 0, 20, 8))]
        assert lines == ["", "  one", "  2", "  three", "  four", "", "", ""]


async def test_the_style_of_a_whole_line_is_drawn() -> None:
    app = CanvasApp()
    async with app.run_test():
        canvas = app.query_one(Recording)
        canvas.show([Text("bold", style=Style(bold=True))])
        (line,) = canvas.render_lines(Region(0, 1, 20, 1))
        assert any(part.text == "bold" and part.style and part.style.bold for part in line)
