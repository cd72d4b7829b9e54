"""Moving between chats: the list, the neighbouring chat, the search.

The list follows changes of the history and the library by other windows and commands as well.
Imported chats are read from the library in a thread, and only when it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing

from app.config import load_config, write_setting
from app.conversation.imported_chats import ImportedChat, ImportedHit, copy_chat, imported_chats
from app.interface.chat.chat_list import ChatList, ListedChat
from app.interface.chat.conversation import Conversation
from app.interface.chat.imported_chat import ImportedChatView
from app.interface.dialogs.search import ChatSearch
from app.interface.messages import MomentChanged
from app.interface.workers import start_worker
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.chats.search import Hit
from datastores.errors import SpecchatError
from datastores.library.library import Library

IMPORTED_SETTING = "imported_chats"
"""Name of the setting that `toggle_imported` changes."""
WATCH_INTERVAL_S = 2.0
"""Seconds between checks whether another process has changed the history or the library."""


class ChatNavigation:
    """Lists the chats of a history, and opens them in the conversation.

    Attributes:
        listed: whether the person has shown or hidden the list; None if neither.
    """

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self.listed: bool | None = None
        self._conversation = conversation
        self._history = history
        self._locations = locations
        self._watched: History | None = None
        self._version = 0
        self._library: Library | None = None
        self._library_version = 0
        self._library_error = ""
        self._imported: Sequence[ImportedChat] = ()
        self._shows_imported = True
        self._following = False

    def begin(self) -> None:
        """List the chats, and start watching for changes by other processes."""
        try:
            self._shows_imported = load_config(self._locations.settings).imported_chats
        except SpecchatError as error:
            self._conversation.show_error(error)
        self.refresh()
        start_worker(self._conversation, self._follow_library)
        # A separate connection never waits for a write of this process.
        self._watched = self._history.new_connection()
        self._version = self._watched.data_version()
        self._conversation.screen.set_interval(WATCH_INTERVAL_S, self.follow_others)

    def close(self) -> None:
        """Stop watching for changes by other processes."""
        for watched in (self._watched, self._library):
            if watched is not None:
                watched.close()
        self._watched = self._library = None

    def refresh(self) -> None:
        """List the chats again, and show the title of the open one."""
        self._list_from(self._history)

    def follow_others(self) -> None:
        """List the chats again if another process has changed the history or the library."""
        if self._watched is None or self._conversation.turn is not None:
            return
        start_worker(self._conversation, self._follow_library)
        try:
            version = self._watched.data_version()
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        if version != self._version:
            self._version = version
            self._list_from(self._watched)

    async def _follow_library(self) -> None:
        """List the imported chats again if they have changed; a persistent error is shown once."""
        if self._following:
            return
        self._following = True
        try:
            found = await asyncio.to_thread(self._read_imported)
        except SpecchatError as error:
            if str(error) != self._library_error:
                self._conversation.show_error(error)
            self._library_error = str(error)
        else:
            self._library_error = ""
            if found != self._imported:
                self._imported = found
                self.refresh()
        finally:
            self._following = False

    def _read_imported(self) -> Sequence[ImportedChat]:
        """The imported chats, which are read again if the library has changed."""
        if self._library is None:
            self._library = Library.open(self._locations.library)
        elif self._library.version() == self._library_version:
            return self._imported
        self._library_version = self._library.version()
        return imported_chats(self._library)

    def toggle_imported(self) -> None:
        """Show or hide imported chats, in later sessions too."""
        self._shows_imported = not self._shows_imported
        self.refresh()
        try:
            write_setting(self._locations, IMPORTED_SETTING, self._shows_imported)
        except SpecchatError as error:
            self._conversation.show_error(error)

    def open_imported(self, chat: ImportedChat, message: int | None = None) -> None:
        """Show an imported chat, and continue a copy of it if the person wants to."""

        def continued(sure: bool | None) -> None:
            if sure:
                start_worker(self._conversation, self._continue, chat)

        view = ImportedChatView(self._locations, chat, message)
        self._conversation.app.push_screen(view, continued)

    async def _continue(self, chat: ImportedChat) -> None:
        def copy(history: History) -> Chat:
            with closing(Library.open(self._locations.library)) as library:
                return copy_chat(library, history, chat)

        try:
            copied = await self._conversation.history_thread.write(copy)
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        self._conversation.open(copied.id)
        self._conversation.prompt.focus()

    def _list_from(self, history: History) -> None:
        try:
            chats = [chat for chat in history.chats() if chat.active is not None]
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        opened = self._conversation.chat
        self._list.show(self._merged(chats), opened)
        self._conversation.show_title(next((chat for chat in chats if chat.id == opened), None))
        self._conversation.post_message(MomentChanged())

    def _merged(self, chats: Sequence[Chat]) -> Sequence[ListedChat]:
        """One's own `chats` and the imported ones, pinned ones first, then by time."""
        if not self._shows_imported or not self._imported:
            return chats
        pinned = sum(chat.pinned for chat in chats)
        others: list[ListedChat] = [*chats[pinned:], *self._imported]
        return [*chats[:pinned], *sorted(others, key=lambda chat: -chat.updated)]

    def toggle(self) -> None:
        """Focus the list of chats; hide it if it has the focus."""
        if self._list.has_focus:
            self.hide()
            self._conversation.prompt.focus()
        else:
            self._show(True)
            self._list.focus()
            # Textual sends no resize event if it measured the list before laying it out.
            self._list.call_after_refresh(self._list.show_cursor)

    def hide(self) -> None:
        """Hide the list."""
        self._show(False)

    def _show(self, listed: bool) -> None:
        self.listed = listed
        self._conversation.screen.set_class(listed, "-listed")

    def open_neighbour(self, step: int) -> None:
        """Open the chat `step` places down the list."""
        neighbour = self._list.neighbour(step)
        if neighbour is not None:
            self._conversation.open(neighbour)

    def search(self) -> None:
        """Search for a message, and open its chat there."""
        search = ChatSearch(self._history, self._locations)
        self._conversation.app.push_screen(search, self._open_hit)

    def _open_hit(self, hit: Hit | ImportedHit | None) -> None:
        if isinstance(hit, Hit):
            self._conversation.open(hit.chat, hit.message)
        elif hit is not None:
            self.open_imported(hit.chat, hit.message)

    @property
    def _list(self) -> ChatList:
        return self._conversation.screen.query_one(ChatList)
