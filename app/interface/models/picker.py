"""Choosing the model that answers, from all that are on this machine, and fetching another.

Owns the box, and what Enter does. What is found is `app.models`' business, how it is listed
`models_list.py`'s, putting a model in the other's place `models_switch.py`'s. Looking through the
machine's files happens beside the screen.

The list in the model picker: which rows stand in it, and which of them Enter is about.

Owns drawing them to its width. What stands on a row is `models_rows.py`'s business, what is done
with it the picker's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from app.interface.commands.keymap import keys_of
from app.interface.models.download import Fetching
from app.interface.models.rows import Row, Wanted, drawn, place_of, rows, verb
from app.interface.text_inputs import Line
from app.interface.themes import ink_of, inks
from app.locations import Locations
from app.models.description import FoundModel
from app.models.download import Fetch
from app.models.selection import Catalogue, ListedModel, catalogue
from app.sanitise import one_line
from datastores.errors import SpecchatError

NARROWEST = 20
"""Columns of a row at least."""


class ModelList(OptionList, can_focus=False):
    """Rows of two lines; the keys that move in it are pressed in the box above.

    Attributes:
        rows: what is listed, from the top.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = inks("picker")

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.rows: list[Row] = []
        self._room = 0

    @property
    def chosen(self) -> Row | None:
        """The row that Enter is about; None while there is none."""
        return self.rows[self.highlighted] if self.highlighted is not None else None

    @property
    def deed(self) -> str:
        """What Enter does; empty where it does nothing."""
        return verb(self.chosen, self._room) if self.chosen is not None else ""

    def put(self, rows: list[Row], room: int, chosen: Row | None) -> None:
        """List other rows, with `room` bytes of memory free; Enter is about `chosen` if it can."""
        self.rows, self._room = rows, room
        self.clear_options()
        self.add_options([self._drawn(row) for row in rows])
        self.highlighted = place_of(chosen, rows)

    def fit(self) -> None:
        """Draw all rows again: the width is another one."""
        self.put(self.rows, self._room, self.chosen)

    def redraw(self, changed: Row) -> bool:
        """Draw one row again; whether it is listed."""
        places = [place for place, row in enumerate(self.rows) if row is changed]
        for place in places:
            self.replace_option_prompt_at_index(place, self._drawn(changed))
        return bool(places)

    def _drawn(self, row: Row) -> Text:
        width = max(self.scrollable_content_region.width - 2, NARROWEST)
        return drawn(row, self._room, width, ink_of(self, "picker"))


REDRAWN = 0.2
"""Seconds between two drawings of what changes all the time."""

BOX = "Words of a name, or ORG/REPO[:QUANT] to fetch from Hugging Face"
LOOKING = "looking for models…"
ALONE = (
    "No other model was found on this machine. To fetch one, type its name on Hugging Face, such"
    " as bartowski/Llama-3.2-3B-Instruct-GGUF."
)
NOTHING = "Nothing here is called so. ORG/REPO fetches a model from Hugging Face."


class ModelPicker(ModalScreen[FoundModel | None]):
    """A box to type into, and the models there are; closes with the one to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f5", "dismiss", "Close", id="picker.close"),
        Binding("up", "list('cursor_up')", "Up", id="picker.up"),
        Binding("down", "list('cursor_down')", "Down", id="picker.down"),
        Binding("pageup", "list('page_up')", "A page up", id="picker.page-up"),
        Binding("pagedown", "list('page_down')", "A page down", id="picker.page-down"),
    ]

    def __init__(self, locations: Locations, in_use: Path | None, fetching: Fetching) -> None:
        super().__init__()
        self._locations = locations
        self._in_use = in_use
        self._fetching = fetching
        self._found: Catalogue | None = None
        self._due = False

    def compose(self) -> ComposeResult:
        frame = Vertical(Line(placeholder=BOX), ModelList(), Static(markup=False))
        frame.border_title = "Models"
        yield frame

    def on_mount(self) -> None:
        self._fetching.changed = self._fetch_changed
        self._look()
        self._list(None)

    def on_unmount(self) -> None:
        self._fetching.changed = None

    @property
    def listed(self) -> ModelList:
        """The list."""
        return self.query_one(ModelList)

    @work(exclusive=True)
    async def _look(self) -> None:
        """Look through the machine, and list what is found while it is being found."""
        listed = float("-inf")
        try:
            steps = catalogue(self._locations, self._in_use)
            while found := await asyncio.to_thread(next, steps, None):
                if found.whole or (self._looking and monotonic() - listed >= REDRAWN):
                    chosen = self.listed.chosen if self._found is not None else None
                    self._found, listed = found, monotonic()
                    self._list(chosen)
        except SpecchatError as error:
            self.notify(one_line(str(error), 400), severity="error", markup=False)

    @property
    def _looking(self) -> bool:
        """Whether some of the models are not found yet."""
        return self._found is None or not self._found.whole

    @on(Input.Changed)
    def _typed(self) -> None:
        self._list(None)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.listed.fit)

    def _list(self, chosen: Row | None) -> None:
        """List what fits what is typed; Enter is still about `chosen`, if it is listed."""
        typed = self.query_one(Input).value
        room = self._found.room if self._found is not None else 0
        self.listed.put(rows(self._found, self._fetching.fetch, typed), room, chosen)
        self._tell(typed)

    def _tell(self, typed: str) -> None:
        """Say below the list what is not in it."""
        others = [
            row for row in self.listed.rows if not (isinstance(row, ListedModel) and row.in_use)
        ]
        note = ""
        if self._looking:
            note = LOOKING
        elif not others:
            note = NOTHING if typed.strip() else ALONE
        static = self.query_one(Static)
        static.update(note)
        static.display = bool(note)
        self._show_keys()

    @on(OptionList.OptionHighlighted)
    def _show_keys(self) -> None:
        enter = f" · Enter {self.listed.deed}" if self.listed.deed else ""
        keys = f"{{picker.up}} {{picker.down}} choose{enter} · {{picker.close}} closes"
        self.query_one(Vertical).border_subtitle = keys_of(self).fill(keys)

    @on(Input.Submitted)
    def _enter(self) -> None:
        if self.listed.chosen is not None:
            self._act(self.listed.chosen)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._act(self.listed.rows[event.option_index])

    def _act(self, row: Row) -> None:
        """Do what Enter does on `row`."""
        if isinstance(row, Wanted):
            self._fetching.begin(row.name)
            with self.prevent(Input.Changed):
                self.query_one(Input).clear()
            self._list(self._fetching.fetch)
        elif isinstance(row, Fetch):
            (self._fetching.stop if row.running else self._fetching.go_on)()
        elif not row.model.problem:
            self.dismiss(None if row.in_use else row.model)

    def _fetch_changed(self) -> None:
        """Draw the download again soon: it comes on a hundred times a second."""
        if not self._due:
            self._due = True
            self.set_timer(REDRAWN, self._draw_fetch)

    def _draw_fetch(self) -> None:
        """Draw the download; when it is done, look at what is here then."""
        self._due = False
        fetch = self._fetching.fetch
        if fetch is not None and fetch.path is not None:
            self._look()
        elif fetch is not None and self.listed.redraw(fetch):
            self._show_keys()
        else:
            self._list(self.listed.chosen)

    async def action_list(self, action: str) -> None:
        await self.listed.run_action(action)
