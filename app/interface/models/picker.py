"""The model picker: lists models on this machine, searches Hugging Face, downloads others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from app.interface.dialogs.basic import ListDialog, list_bindings
from app.interface.keymap import keymap_of
from app.interface.models.download_task import DownloadTask
from app.interface.models.hub_pages import (
    HubPage,
    answer_offers,
    answer_search,
    asking,
    suggestions,
)
from app.interface.models.rows import (
    DownloadRequest,
    OfferRow,
    PickerRow,
    SearchRequest,
    enter_action,
    index_of,
    render,
    rows,
)
from app.interface.text_inputs import LineInput
from app.interface.themes import panel_styles, style_classes
from app.interface.workers import start_worker
from app.locations import Locations
from app.models.description import FoundModel
from app.models.download import ModelDownload
from app.models.hub_search import HubRepository
from app.models.selection import Catalogue, ListedModel, catalogue
from app.sanitise import one_line
from datastores.errors import SpecchatError

MAX_NOTE_CHARS = 300
MIN_ROW_COLUMNS = 20
"""Minimum width of a row."""


class ModelList(OptionList, can_focus=False):
    """The list of the picker, with two lines for a row; the box above it has the focus."""

    COMPONENT_CLASSES: ClassVar[set[str]] = style_classes("picker")

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.rows: list[PickerRow] = []
        self._free_memory = 0

    @property
    def chosen(self) -> PickerRow | None:
        """The highlighted row; None while the list is empty."""
        return self.rows[self.highlighted] if self.highlighted is not None else None

    @property
    def enter_action(self) -> str:
        """What Enter does, in a word; empty if nothing."""
        return enter_action(self.chosen, self._free_memory) if self.chosen is not None else ""

    def show(self, rows: list[PickerRow], free_memory: int, chosen: PickerRow | None) -> None:
        """List `rows`, with `chosen` highlighted if it is among them; `free_memory` is in bytes."""
        self.rows, self._free_memory = rows, free_memory
        self.clear_options()
        self.add_options([self._prompt(row) for row in rows])
        self.highlighted = index_of(chosen, rows)

    def redraw_all(self) -> None:
        """Redraw all rows for a new width."""
        self.show(self.rows, self._free_memory, self.chosen)

    def redraw(self, changed: PickerRow) -> bool:
        """Redraw one row; returns whether it is listed."""
        indexes = [index for index, row in enumerate(self.rows) if row is changed]
        for index in indexes:
            self.replace_option_prompt_at_index(index, self._prompt(changed))
        return bool(indexes)

    def _prompt(self, row: PickerRow) -> Text:
        width = max(self.scrollable_content_region.width - 2, MIN_ROW_COLUMNS)
        return render(row, self._free_memory, width, panel_styles(self, "picker"))


REDRAW_SECONDS = 0.2
"""Minimum seconds between redraws while a download or a search progresses."""

BOX = "Filter by name, or search Hugging Face: words, or ORG/REPO[:QUANT]"
LOOKING = "looking for models…"
SMALL = (
    "Enter downloads a model that is not here yet (speeds are estimates); type words to search"
    " Hugging Face for others."
)
WITHOUT_HUB = "The models above fit this machine."


class ModelPicker(ListDialog[FoundModel | None]):
    """Filters and lists the models; closes with the one to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f5", "back", "Back, or close", id="picker.close"),
        *list_bindings("picker"),
    ]

    def __init__(
        self, locations: Locations, in_use: Path | None, download_task: DownloadTask
    ) -> None:
        super().__init__()
        self._locations = locations
        self._in_use = in_use
        self._download_task = download_task
        self._found: Catalogue | None = None
        self._redraw_pending = False
        self._pages: list[HubPage] = []

    def compose(self) -> ComposeResult:
        frame = Vertical(LineInput(placeholder=BOX), ModelList(), Static(markup=False))
        frame.border_title = "Models"
        yield frame

    def on_mount(self) -> None:
        self._download_task.subscribe(self._schedule_redraw)
        self._search()
        self._list(None)

    def on_unmount(self) -> None:
        self._download_task.unsubscribe(self._schedule_redraw)

    @property
    def listed(self) -> ModelList:
        return self.query_one(ModelList)

    @work(exclusive=True)
    async def _search(self) -> None:
        listed_at = float("-inf")
        try:
            catalogues = catalogue(self._locations, self._in_use)
            while (found := await asyncio.to_thread(next, catalogues, None)) and self.display:
                if found.whole or (self._searching and monotonic() - listed_at >= REDRAW_SECONDS):
                    chosen = self.listed.chosen if self._found is not None else None
                    self._found, listed_at = found, monotonic()
                    self._list(chosen)
        except SpecchatError as error:
            self.show_error(error)

    @property
    def _searching(self) -> bool:
        return self._found is None or not self._found.whole

    @on(Input.Changed)
    def _typed(self) -> None:
        self._leave_pages(0)

    def action_back(self) -> None:
        """Return to the previous page, or close the picker on the first one."""
        if self._pages:
            self._leave_pages(len(self._pages) - 1)
        else:
            self.dismiss(None)

    def _leave_pages(self, kept: int) -> None:
        """Drop all pages after the first `kept`, and a pending answer of the hub."""
        self.workers.cancel_group(self, "hub")
        del self._pages[kept:]
        self._list(None)

    def _ask(self, page: HubPage, answering: Callable[[], Awaitable[HubPage]]) -> None:
        """Show `page` until the answer replaces it, or suggestions if the hub is unreachable."""

        async def replace_page() -> None:
            try:
                answer = await answering()
            except SpecchatError as error:
                known = self._suggestions()
                note = one_line(str(error), MAX_NOTE_CHARS)
                if known:
                    note = f"{note}\n{WITHOUT_HUB}"
                answer = replace(page, rows=known, note=note)
            if self.display:
                self._pages[-1] = answer
                self._list(None)

        self._pages.append(page)
        self._list(None)
        start_worker(self, replace_page, group="hub", exclusive=True)

    @property
    def _free_memory(self) -> int:
        return self._found.room if self._found is not None else 0

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.listed.redraw_all)

    def _list(self, chosen: PickerRow | None) -> None:
        """List the current page, with `chosen` highlighted if it is on it."""
        typed = self.query_one(Input).value
        page = self._pages[-1] if self._pages else self._own_page(typed)
        self.query_one(Vertical).border_title = Content(one_line(page.title))
        self.listed.show(list(page.rows), self._free_memory, chosen)
        self._show_note(page.note)

    def _own_page(self, typed: str) -> HubPage:
        """The models on this machine, with suggestions if all of those are smaller."""
        listed = rows(self._found, self._download_task.fetch, typed)
        if self._searching:
            return HubPage("Models", listed, LOOKING)
        models = [row.model for row in listed if isinstance(row, ListedModel)]
        if typed.strip() or len(models) < len(listed):
            return HubPage("Models", listed, "")
        suggested = self._suggestions()
        smallest = min((row.offer.size for row in suggested), default=0)
        if any(model.size >= smallest and not model.problem for model in models):
            return HubPage("Models", listed, "")
        return HubPage("Models", [*listed, *suggested], SMALL)

    def _suggestions(self) -> list[OfferRow]:
        try:
            return suggestions(self._locations, self._free_memory)
        except SpecchatError as error:
            self.show_error(error)
            return []

    def _show_note(self, note: str) -> None:
        static = self.query_one(Static)
        static.update(note)
        static.display = bool(note)
        self._show_keys()

    @on(OptionList.OptionHighlighted)
    def _show_keys(self) -> None:
        enter = f" · Enter {self.listed.enter_action}" if self.listed.enter_action else ""
        leave = "Back" if self._pages else "Cancel"
        keys = f"{{picker.up}} {{picker.down}} Choose{enter} · {{picker.close}} {leave}"
        self.query_one(Vertical).border_subtitle = keymap_of(self).fill(keys)

    @on(Input.Submitted)
    def _enter(self) -> None:
        if self.listed.chosen is not None:
            self._press_enter_on(self.listed.chosen)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._press_enter_on(self.listed.rows[event.option_index])

    def _press_enter_on(self, row: PickerRow) -> None:
        if isinstance(row, SearchRequest):
            self._ask(asking(row), partial(answer_search, row.words))
        elif isinstance(row, HubRepository):
            offers = partial(answer_offers, row.name, self._locations, self._free_memory)
            self._ask(asking(row), offers)
        elif isinstance(row, DownloadRequest | OfferRow):
            self._download(row.name if isinstance(row, DownloadRequest) else row.offer.name)
        elif isinstance(row, ModelDownload):
            (self._download_task.cancel if row.running else self._download_task.resume)()
        elif not row.model.problem:
            self.dismiss(None if row.in_use else row.model)

    def _download(self, name: str) -> None:
        self._download_task.begin(name)
        with self.prevent(Input.Changed):
            self.query_one(Input).clear()
        self._pages.clear()
        self._list(self._download_task.fetch)

    def _schedule_redraw(self) -> None:
        """Redraw the download soon; it progresses a hundred times a second."""
        if not self._redraw_pending:
            self._redraw_pending = True
            self.set_timer(REDRAW_SECONDS, self._redraw_download)

    def _redraw_download(self) -> None:
        self._redraw_pending = False
        fetch = self._download_task.fetch
        if fetch is not None and fetch.path is not None:
            self._search()
        elif fetch is not None and self.listed.redraw(fetch):
            self._show_keys()
        else:
            self._list(self.listed.chosen)
