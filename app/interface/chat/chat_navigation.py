"""Moving between chats: the list, the neighbouring chat, the search.

The list follows changes of the history by other windows and commands as well.
"""

from __future__ import annotations

from app.interface.chat.chat_list import ChatList
from app.interface.chat.conversation import Conversation
from app.interface.dialogs.search import ChatSearch
from app.interface.messages import MomentChanged
from datastores.chats.history import History
from datastores.chats.search import Hit
from datastores.errors import SpecchatError

WATCH_INTERVAL_S = 2.0
"""Seconds between checks whether another process has changed the history."""


class ChatNavigation:
    """Lists the chats of a history, and opens them in the conversation.

    Attributes:
        listed: whether the person has shown or hidden the list; None if neither.
    """

    def __init__(self, conversation: Conversation, history: History) -> None:
        self.listed: bool | None = None
        self._conversation = conversation
        self._history = history
        self._watched: History | None = None
        self._version = 0

    def begin(self) -> None:
        """List the chats, and start watching for changes by other processes."""
        self.refresh()
        # A separate connection never waits for a write of this process.
        self._watched = self._history.new_connection()
        self._version = self._watched.data_version()
        self._conversation.screen.set_interval(WATCH_INTERVAL_S, self.follow_others)

    def close(self) -> None:
        """Stop watching for changes by other processes."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None

    def refresh(self) -> None:
        """List the chats again, and show the title of the open one."""
        self._list_from(self._history)

    def follow_others(self) -> None:
        """List the chats again if another process has changed the history."""
        if self._watched is None or self._conversation.turn is not None:
            return
        try:
            version = self._watched.data_version()
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        if version != self._version:
            self._version = version
            self._list_from(self._watched)

    def _list_from(self, history: History) -> None:
        try:
            chats = [chat for chat in history.chats() if chat.active is not None]
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        opened = self._conversation.chat
        self._list.show(chats, opened)
        self._conversation.show_title(next((chat for chat in chats if chat.id == opened), None))
        self._conversation.post_message(MomentChanged())

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
        self._conversation.app.push_screen(ChatSearch(self._history), self._open_hit)

    def _open_hit(self, hit: Hit | None) -> None:
        if hit is not None:
            self._conversation.open(hit.chat, hit.message)

    @property
    def _list(self) -> ChatList:
        return self._conversation.screen.query_one(ChatList)
