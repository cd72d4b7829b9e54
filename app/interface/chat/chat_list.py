"""The list of chats on the left, one's own and imported ones; only visible lines are rendered, so
its length costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip

from app.conversation.imported_chats import ImportedChat
from app.interface.messages import (
    ChatActionRequested,
    ChatListLeft,
    ChatSelected,
    ImportedChatSelected,
    ImportedChatsToggled,
)
from app.interface.themes import component_color
from app.interface.wording import NEW_CHAT, TUNED, age
from app.sanitise import one_line
from datastores.chats.records import Chat

MARGIN = 2
"""Columns left free on the right."""

PINNED, PRIVATE, IMPORTED = "▴", "◌", "↓"
"""Marks before a title."""
READ_ONLY = "Imported chats are read-only. Open it to read it, and to continue a copy."

ListedChat = Chat | ImportedChat


class ChatList(ScrollView, can_focus=True):
    """All chats in the given order; the open one is marked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "chat-list--dim",
        "chat-list--accent",
        "chat-list--cursor",
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Open chat", id="chats.choose"),
        Binding("up", "move(-1)", "Up", id="chats.up"),
        Binding("down", "move(1)", "Down", id="chats.down"),
        Binding("alt+r", "act('rename')", "Rename", id="chats.rename"),
        Binding("alt+p", "act('pin')", f"Pin or unpin ({PINNED})", id="chats.pin"),
        Binding("alt+v", "act('private')", f"Make private or not ({PRIVATE})", id="chats.private"),
        Binding("delete", "act('delete')", "Delete", id="chats.delete"),
        Binding(
            "alt+h",
            "toggle_imported",
            f"Show or hide imported ({IMPORTED})",
            id="chats.imported",
        ),
        Binding("escape", "leave", "Back to the prompt", id="chats.leave"),
    ]

    cursor: var[int] = var(0, init=False)
    """Index of the chat that Enter opens."""

    def __init__(self) -> None:
        super().__init__()
        self._chats: Sequence[ListedChat] = ()
        self._open: int | None = None

    @property
    def count(self) -> int:
        """Number of listed chats."""
        return len(self._chats)

    def show(self, chats: Sequence[ListedChat], open_chat: int | None) -> None:
        """List `chats` with `open_chat` marked."""
        at_cursor: int | bytes | None = open_chat
        if self.has_focus and self._chats:
            at_cursor = _id(self._chats[self.cursor])
        self._chats, self._open = chats, open_chat
        ids = [_id(chat) for chat in chats]
        if at_cursor in ids:
            self.cursor = ids.index(at_cursor)
        else:
            self.cursor = min(self.cursor, max(len(ids) - 1, 0)) if self.has_focus else 0
        self.virtual_size = Size(self.size.width, len(chats))
        self.refresh()

    def neighbour(self, step: int) -> int | None:
        """The chat `step` places below the open one, or the first if none is open; imported ones do
        not count."""
        ids = [chat.id for chat in self._chats if isinstance(chat, Chat)]
        if self._open not in ids:
            return ids[0] if ids else None
        place = ids.index(self._open) + step
        return ids[place] if 0 <= place < len(ids) else None

    def watch_cursor(self) -> None:
        self.show_cursor()
        self.refresh()

    def on_resize(self) -> None:
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll to the cursor."""
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)

    def on_click(self, event: events.Click) -> None:
        line = event.get_content_offset(self)
        if line is not None and line.y + self.scroll_offset.y < len(self._chats):
            self.cursor = line.y + self.scroll_offset.y
            self.action_choose()

    def action_choose(self) -> None:
        if self._chats:
            chat = self._chats[self.cursor]
            if isinstance(chat, Chat):
                self.post_message(ChatSelected(chat.id))
            else:
                self.post_message(ImportedChatSelected(chat))

    def action_act(self, action: str) -> None:
        chat = self._chats[self.cursor] if self._chats else None
        if isinstance(chat, Chat):
            self.post_message(ChatActionRequested(action, chat.id))
        elif chat is not None:
            self.notify(READ_ONLY, severity="warning", markup=False)

    def action_toggle_imported(self) -> None:
        self.post_message(ImportedChatsToggled())

    def action_move(self, step: int) -> None:
        self.cursor = min(max(self.cursor + step, 0), max(len(self._chats) - 1, 0))

    def action_leave(self) -> None:
        self.post_message(ChatListLeft())

    def render_line(self, y: int) -> Strip:
        """The chat on the visible line `y`."""
        index = y + self.scroll_offset.y
        width, base = self.size.width, self.rich_style
        if index >= len(self._chats):
            return Strip.blank(width, base)
        if index == self.cursor and self.has_focus:
            base = self.get_component_rich_style("chat-list--cursor")
        text = self._line(self._chats[index], width - MARGIN)
        return (
            Strip(text.render(self.app.console)).apply_style(base).extend_cell_length(width, base)
        )

    def _line(self, chat: ListedChat, width: int) -> Text:
        when = age(datetime.fromtimestamp(chat.updated), datetime.now()) if chat.updated else ""
        is_open = _id(chat) == self._open
        dim = component_color(self, "chat-list--dim")
        line = Text(no_wrap=True)
        line.append(" ▌" if is_open else "  ", style=component_color(self, "chat-list--accent"))
        marks = IMPORTED
        if isinstance(chat, Chat):
            marks = PINNED * chat.pinned + PRIVATE * chat.private + TUNED * chat.tuned
        line.append(f"{marks} " if marks else "", style=dim)
        line.append(one_line(chat.title) or NEW_CHAT, style=Style(bold=is_open))
        line.truncate(max(8, width - len(when) - 1), overflow="ellipsis")
        line.pad_right(max(1, width - len(when) - line.cell_len))
        return line.append(when, style=dim)


def _id(chat: ListedChat) -> int | bytes:
    """What identifies a chat in the list."""
    return chat.id if isinstance(chat, Chat) else chat.key
