"""Finding a chat by words in its title or its messages, as one types.

Owns the box and the list of what was found. What is found is `datastores.chats.search`'s business;
where it is opened, the chat screen's. Searches run on a thread beside the screen's, and a newer one
takes the place of an older.

Searches beside the screen, over one connection that stays open between them.

Opening checks the whole file, which takes longer than to search it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from threading import Lock
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList

from app.interface.chat.chat_list import age
from app.interface.chat.topbar import NEW_CHAT
from app.interface.commands.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.sanitise import clean, one_line
from datastores.chats.history import History
from datastores.chats.records import USER
from datastores.chats.search import Hit, search
from datastores.errors import SpecchatError


class SearchConnection:
    """One search at a time, on whichever thread; from the first one until `close`."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._beside: History | None = None
        self._closed = False
        self._lock = Lock()

    def find(self, typed: str) -> list[Hit]:
        """What `typed` finds; nothing once closed.

        Raises:
            StoreError: the history cannot be read.
        """
        with self._lock:
            if self._closed:
                return []
            if self._beside is None:
                self._beside = self._history.new_connection()
            return search(self._beside, typed)

    def close(self) -> None:
        """Let the connection go, after the search at hand."""
        with self._lock:
            self._closed = True
            if self._beside is not None:
                self._beside.close()


KEY_HINT = "{finder.up} {finder.down} choose · Enter opens · {finder.close} closes"
NOTHING_FOUND = "nothing found"


class ChatSearch(ModalScreen[Hit | None]):
    """A box to type into, and what was found; closes with the hit to open, or None.

    Attributes:
        found_for: what was typed when that was found; the next search may be under way.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"chat-search--dim", "chat-search--found"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", id="finder.close"),
        Binding("up", "list('cursor_up')", "Up", id="finder.up"),
        Binding("down", "list('cursor_down')", "Down", id="finder.down"),
        Binding("pageup", "list('page_up')", "A page up", id="finder.page-up"),
        Binding("pagedown", "list('page_down')", "A page down", id="finder.page-down"),
    ]

    def __init__(self, history: History) -> None:
        super().__init__()
        self.found_for = ""
        self._searching = SearchConnection(history)
        self._hits: list[Hit] = []
        self._opens = False

    def compose(self) -> ComposeResult:
        found = OptionList(markup=False)
        found.can_focus = False
        frame = Vertical(LineInput(placeholder="Words in a title or a message"), found)
        frame.border_subtitle = keymap_of(self).fill(KEY_HINT)
        yield frame

    def on_mount(self) -> None:
        # The connection is open by the time something is typed.
        self._look_for("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._opens = False
        self._look_for(event.value)

    @work(exclusive=True)
    async def _look_for(self, typed: str) -> None:
        """Find what is typed now; a search that is overtaken shows nothing."""
        try:
            hits = await asyncio.to_thread(self._searching.find, typed)
        except SpecchatError as error:
            self.notify(one_line(str(error), 400), severity="error", markup=False)
            return
        self._show(hits, typed)

    def on_unmount(self) -> None:
        self._searching.close()

    def _show(self, hits: list[Hit], typed: str) -> None:
        self._hits, self.found_for = hits, typed
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(self._lines(hits))
        listed.highlighted = 0 if hits else None
        frame = self.query_one(Vertical)
        frame.border_subtitle = (
            keymap_of(self).fill(KEY_HINT) if hits or not typed.strip() else NOTHING_FOUND
        )
        if self._opens:
            self._opens = False
            self._open_chosen()

    def _lines(self, hits: Iterable[Hit]) -> list[Text]:
        return [self._line(hit) for hit in hits]

    def _line(self, hit: Hit) -> Text:
        """The chat's title and, below it, the words around what was found in a message."""
        dim = self._style("chat-search--dim")
        when = age(datetime.fromtimestamp(hit.created), datetime.now())
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
        """Open what is chosen, as soon as it was looked for what is typed by now."""
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

    async def action_list(self, action: str) -> None:
        await self.query_one(OptionList).run_action(action)
