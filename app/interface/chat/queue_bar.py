"""The messages that are sent when the answer ends, one line each above the prompt.

A click on a line moves its message back to the prompt, a click on its ✕ removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from app.interface.chat.attachment_bar import REMOVE
from app.interface.chat.prompt import Unsent
from app.interface.themes import component_color
from app.sanitise import one_line

LABEL = "queued "
MAX_ROWS = 5
"""Messages shown at once; only one on a short screen."""
_INDEX, _REMOVES = "queued", "removes"
"""Keys of style metadata: the message of a line, and whether a click removes it."""


@dataclass
class QueuedClicked(Message):
    """The person clicked on the queued message `index`, to remove it or to edit it."""

    index: int
    removes: bool


class QueueBar(Static):
    """Queued messages of the chat being answered, next one first; hidden while there are none."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"queue-bar--dim", "queue-bar--text"}

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.messages: Sequence[Unsent] = ()
        self._open = True

    def on_mount(self) -> None:
        self.display = False

    def show_in(self, *, is_open: bool) -> None:
        """Show the messages only if the chat they belong to is open."""
        self._open = is_open
        self._show(self.messages)

    def add(self, message: Unsent) -> None:
        """Append `message`."""
        self._show([*self.messages, message])

    def take(self, index: int) -> Unsent | None:
        """Remove and return the message at `index` (-1: the last one); None if there is none."""
        messages = list(self.messages)
        if not messages:
            return None
        taken = messages.pop(index)
        self._show(messages)
        return taken

    def take_all(self) -> Unsent:
        """Remove all messages and return them joined."""
        messages, chips = self.messages, [chip for one in self.messages for chip in one.chips]
        self._show(())
        return Unsent("\n".join(message.text for message in messages), chips)

    def _show(self, messages: Sequence[Unsent]) -> None:
        self.messages = tuple(messages)
        self.display = bool(messages) and self._open
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        index = event.style.meta.get(_INDEX, -1)
        if 0 <= index < len(self.messages):
            self.post_message(QueuedClicked(index, event.style.meta.get(_REMOVES, False)))

    def render(self) -> Text:
        dim, style = (component_color(self, f"queue-bar--{kind}") for kind in ("dim", "text"))
        width = max(20, self.content_size.width or self.size.width)
        lines, rows = [], 1 if self.screen.has_class("-short") else MAX_ROWS
        for index, message in enumerate(self.messages[:rows]):
            files = f" · {len(message.chips)} attached" if message.chips else ""
            left = len(self.messages) - rows
            more = f" · {left} more" if left > 0 and index == rows - 1 else ""
            space = max(8, width - len(LABEL) - len(files) - len(more) - 2)
            text = one_line(message.text, space)
            line = Text.assemble((LABEL, dim), (text, style), (files + more, dim))
            line.stylize(Style.from_meta({_INDEX: index}))
            line.append(f" {REMOVE}", dim + Style.from_meta({_INDEX: index, _REMOVES: True}))
            lines.append(line)
        return Text("\n").join(lines)
