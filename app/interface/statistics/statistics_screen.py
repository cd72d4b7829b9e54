"""The statistics screen: reads the report in a thread, and shows its page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import date
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.interface.keymap import keymap_of
from app.interface.statistics.page import page
from app.interface.themes import panel_styles, style_classes
from app.locations import Locations
from app.sanitise import one_line
from app.usage_report import UsageReport, read_report
from datastores.chats.history import History
from datastores.errors import SpecchatError

READING = "Reading…"
MAX_ERROR_CHARACTERS = 400


def report_reader(history: History, locations: Locations) -> Callable[[], UsageReport]:
    """A function that reads the report on any thread, over a separate connection."""

    def read() -> UsageReport:
        with closing(history.new_connection()) as connection:
            return read_report(connection, locations, date.today())

    return read


class StatisticsPage(Static):
    """The charts and tables, laid out for the width of the widget."""

    COMPONENT_CLASSES: ClassVar[set[str]] = style_classes("statistics")

    def __init__(self) -> None:
        super().__init__(READING, markup=False)
        self._report: UsageReport | None = None

    def show(self, report: UsageReport) -> None:
        self._report = report
        self._draw(self.content_size.width)

    def on_resize(self, event: events.Resize) -> None:
        self._draw(event.size.width)

    def _draw(self, width: int) -> None:
        if self._report is not None:
            styles = panel_styles(self, "statistics", Style(color=self.rich_style.color))
            self.update(Text("\n").join(page(self._report, width, styles)))


class StatisticsScreen(ModalScreen[None]):
    """One scrolling page of charts and tables."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f10,q,enter", "dismiss", "Close statistics", id="stats.close"),
    ]

    def __init__(self, read: Callable[[], UsageReport]) -> None:
        super().__init__()
        self._read = read

    def compose(self) -> ComposeResult:
        frame = VerticalScroll(StatisticsPage())
        frame.border_title = "Statistics"
        frame.border_subtitle = keymap_of(self).fill("{stats.close} Close")
        yield frame

    def on_mount(self) -> None:
        self._load()

    @work
    async def _load(self) -> None:
        shown = self.query_one(StatisticsPage)
        try:
            report = await asyncio.to_thread(self._read)
        except SpecchatError as error:
            shown.update(Text(one_line(str(error), MAX_ERROR_CHARACTERS)))
        else:
            if self.display:
                shown.show(report)
