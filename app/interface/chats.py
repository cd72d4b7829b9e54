"""The list of chats at the left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.interface.messages import ChatChosen, ChatsLeft
from app.interface.topbar import NEW_CHAT
from app.sanitise import one_line
from datastores.records import Chat


class Chats(OptionList):
    """All chats, the one last written in first; the open one is marked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"chats--dim", "chats--accent"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back to the prompt", id="chats.leave"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._chats: Sequence[Chat] = ()
        self._open: int | None = None

    def show(self, chats: Sequence[Chat], open_chat: int | None) -> None:
        """List `chats` with `open_chat` marked."""
        self._chats, self._open = chats, open_chat
        self.set_options([Option(self._line(chat), str(chat.id)) for chat in chats])
        ids = [chat.id for chat in chats]
        self.highlighted = ids.index(open_chat) if open_chat in ids else None

    def neighbour(self, step: int) -> int | None:
        """The chat `step` places below the open one, or the first where none is open."""
        ids = [chat.id for chat in self._chats]
        if self._open not in ids:
            return ids[0] if ids else None
        place = ids.index(self._open) + step
        return ids[place] if 0 <= place < len(ids) else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(ChatChosen(int(event.option_id or 0)))

    def action_leave(self) -> None:
        self.post_message(ChatsLeft())

    def _line(self, chat: Chat) -> Text:
        when = age(datetime.fromtimestamp(chat.updated), datetime.now())
        is_open = chat.id == self._open
        title = Text(no_wrap=True)
        title.append("▌" if is_open else " ", style=self._style("accent"))
        title.append(one_line(chat.title) or NEW_CHAT, style=Style(bold=is_open))
        room = self.content_size.width - 4 or 26
        title.truncate(max(8, room - len(when) - 1), overflow="ellipsis")
        title.pad_right(max(1, room - len(when) - title.cell_len))
        return title.append(when, style=self._style("dim"))

    def _style(self, kind: str) -> Style:
        return Style(color=self.get_component_rich_style(f"chats--{kind}").color)


def age(then: datetime, now: datetime) -> str:
    """How long ago, in at most five characters: the time, the weekday or the date."""
    days = (now.date() - then.date()).days
    if days <= 0:
        return f"{then:%H:%M}"
    if days < 7:
        return f"{then:%a}"
    return f"{then:%d %b}" if then.year == now.year else f"{then:%Y}"
