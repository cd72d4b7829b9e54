"""The search dialog: finds chats by words in titles and messages as they are typed."""

from __future__ import annotations

import asyncio
from datetime import datetime
from threading import Lock
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList

from app.conversation.imported_chats import ImportedChatSearch, ImportedHit
from app.interface.dialogs.basic import ListDialog, list_bindings
from app.interface.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.interface.wording import NEW_CHAT, age
from app.locations import Locations
from app.sanitise import clean, one_line
from datastores.chats.history import History
from datastores.chats.records import USER
from datastores.chats.search import Hit, search
from datastores.errors import SpecchatError
from engines.chat_template.reasoning import without_marks


class SearchConnection:
    """Runs one search at a time, from any thread, over one connection to each store.

    Opening a connection checks the whole file, which takes longer than a search.
    """

    def __init__(self, history: History, locations: Locations) -> None:
        self._history = history
        self._locations = locations
        self._connection: History | None = None
        self._imported: ImportedChatSearch | None = None
        self._closed = False
        self._lock = Lock()

    def find(self, typed: str) -> list[AnyHit]:
        """Hits for `typed`, in one's own chats and then in imported ones; none after `close`.

        Raises:
            StoreError: a store cannot be read.
        """
        with self._lock:
            if self._closed:
                return []
            if self._connection is None:
                self._connection = self._history.new_connection()
            if self._imported is None:
                self._imported = ImportedChatSearch(self._locations)
            own = search(self._connection, typed, readable=without_marks)
            return [*own, *self._imported.find(typed)]

    def close(self) -> None:
        """Close the connection after the current search."""
        with self._lock:
            self._closed = True
            for opened in (self._connection, self._imported):
                if opened is not None:
                    opened.close()


KEY_HINT = "{finder.up} {finder.down} Choose · Enter Open · {finder.close} Cancel"
NOTHING_FOUND = "No match."


AnyHit = Hit | ImportedHit


class ChatSearch(ListDialog[AnyHit | None]):
    """The dialog; closes with the hit to open, or None.

    Attributes:
        found_for: the words of the hits shown; a newer search may be running.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"chat-search--dim", "chat-search--found"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", id="finder.close"),
        *list_bindings("finder"),
    ]

    def __init__(self, history: History, locations: Locations) -> None:
        super().__init__()
        self.found_for = ""
        self._searching = SearchConnection(history, locations)
        self._hits: list[AnyHit] = []
        self._opens = False

    def compose(self) -> ComposeResult:
        found = OptionList(markup=False)
        found.can_focus = False
        frame = Vertical(LineInput(placeholder="Search titles and messages"), found)
        frame.border_title = "Search chats"
        frame.border_subtitle = keymap_of(self).fill(KEY_HINT)
        yield frame

    def on_mount(self) -> None:
        # Open the connection before something is typed.
        self._search("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._opens = False
        self._search(event.value)

    @work(exclusive=True)
    async def _search(self, typed: str) -> None:
        """Search; a newer search cancels this one."""
        try:
            hits = await asyncio.to_thread(self._searching.find, typed)
        except SpecchatError as error:
            self.show_error(error)
            return
        if self.display:
            self._show(hits, typed)

    def on_unmount(self) -> None:
        self._searching.close()

    def _show(self, hits: list[AnyHit], typed: str) -> None:
        self._hits, self.found_for = hits, typed
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([self._line(hit) for hit in hits])
        listed.highlighted = 0 if hits else None
        frame = self.query_one(Vertical)
        frame.border_subtitle = (
            keymap_of(self).fill(KEY_HINT) if hits or not typed.strip() else NOTHING_FOUND
        )
        if self._opens:
            self._opens = False
            self._open_chosen()

    def _line(self, hit: AnyHit) -> Text:
        """The chat's title and, for a message, the excerpt below it."""
        dim = self._style("chat-search--dim")
        when = age(datetime.fromtimestamp(hit.created), datetime.now()) if hit.created else ""
        if isinstance(hit, ImportedHit):
            when = ", ".join(filter(None, (when, "imported")))
        excerpt = Text()
        for text, found in hit.excerpt.pieces():
            excerpt.append(clean(text), self._style("chat-search--found") if found else None)
        if hit.message is None:
            return Text.assemble(excerpt, (f"  {when}", dim))
        speaker = "you" if hit.role == USER else "answer"
        title = one_line(hit.title, 48) or NEW_CHAT
        return Text.assemble((title, Style(bold=True)), (f"  {speaker}, {when}\n", dim), excerpt)

    def _style(self, component: str) -> Style:
        style = self.get_component_rich_style(component)
        return Style(color=style.color, bold=style.bold)

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        """Open the chosen hit as soon as the hits match the typed words."""
        self._opens = event.value != self.found_for
        if not self._opens:
            self._open_chosen()

    def _open_chosen(self) -> None:
        chosen = self.query_one(OptionList).highlighted
        if chosen is not None:
            self.dismiss(self._hits[chosen])

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._hits[event.option_index])
