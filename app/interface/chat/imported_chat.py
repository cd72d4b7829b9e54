"""The dialog that shows an imported chat, read-only, and offers to continue a copy."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from app.conversation.imported_chats import ImportedChat, read_messages
from app.interface.chat.thread import Thread, entries
from app.interface.dialogs.basic import ListDialog
from app.interface.keymap import keymap_of
from app.interface.transcript.transcript import Transcript
from app.interface.wording import NEW_CHAT
from app.locations import Locations
from app.sanitise import one_line
from datastores.chats.records import StoredMessage
from datastores.errors import SpecchatError
from datastores.library.library import Library

KEYS = "{imported.continue} Continue in a copy · {imported.close} Close"


class ImportedChatView(ListDialog[bool | None]):
    """Shows one chat; closes with whether the person wants to continue it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "list('scroll_up')", "Up", id="imported.up"),
        Binding("down", "list('scroll_down')", "Down", id="imported.down"),
        Binding("pageup", "list('page_up')", "Page up", id="imported.page-up"),
        Binding("pagedown", "list('page_down')", "Page down", id="imported.page-down"),
        Binding("home", "list('scroll_home')", "First message", id="imported.start"),
        Binding("end", "list('scroll_end')", "Last message", id="imported.end"),
        Binding("enter", "dismiss(True)", "Continue in a copy of your own", id="imported.continue"),
        Binding("escape", "dismiss", "Close", id="imported.close"),
    ]

    def __init__(
        self, locations: Locations, chat: ImportedChat, message: int | None = None
    ) -> None:
        """`message` is the number, from 0, of the message to show first."""
        super().__init__()
        self._locations = locations
        self._chat = chat
        self._message = message

    def compose(self) -> ComposeResult:
        transcript = Transcript()
        transcript.can_focus = False
        frame = Vertical(transcript)
        chat = self._chat
        facts = (chat.date, f"from {one_line(chat.import_name)}")
        title = one_line(chat.title) or NEW_CHAT
        frame.border_title = " · ".join((title, *filter(None, facts)))
        frame.border_subtitle = keymap_of(self).fill(KEYS)
        yield frame

    def on_mount(self) -> None:
        self._read()

    @property
    def list_widget(self) -> Transcript:
        return self.query_one(Transcript)

    @work
    async def _read(self) -> None:
        try:
            messages = await asyncio.to_thread(self._messages)
        except SpecchatError as error:
            self.show_error(error)
            return
        if self.display:
            self.list_widget.show(entries(Thread(messages), None))
            self.list_widget.go_to_message(messages[self._message or 0].id)

    def _messages(self) -> list[StoredMessage]:
        with closing(Library.open(self._locations.library)) as library:
            return read_messages(library, self._chat)
