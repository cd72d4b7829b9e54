"""The transcript with a cursor over its messages, for the keyboard.

The cursor exists while the transcript has the focus. Keys that act on the last answer elsewhere act
on the message under the cursor (`app.interface.chat.message_actions`). No binding is a character:
typing goes to the prompt (`ChatView.claim_typing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message as TextualMessage
from textual.strip import Strip

from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Question
from app.interface.transcript.selection import Extent
from app.interface.transcript.transcript import Transcript

CURSOR = "█"

Message = Question | Answer


@dataclass
class MessageActionRequested(TextualMessage):
    """The user requested an action of `MessageActions` on a message of the transcript."""

    action: str
    message: Message | None


class MessageList(Transcript, can_focus=True):
    """Questions and answers, one of them under the cursor while the widget has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Previous message", id="message.up"),
        Binding("down", "move(1)", "Next message", id="message.down"),
        Binding("pageup", "page_up", "Scroll up", id="message.scroll-up"),
        Binding("pagedown", "page_down", "Scroll down", id="message.scroll-down"),
        Binding("alt+c,ctrl+g", "act('copy')", "Copy message", id="message.copy"),
        Binding(
            "alt+y", "act('copy_code')", "Copy its code, block by block", id="message.copy-code"
        ),
        Binding(
            "alt+e,ctrl+t", "act('edit')", "Edit this question, in a new version", id="message.edit"
        ),
        Binding("ctrl+r", "act('regenerate')", "Regenerate this answer", id="message.regenerate"),
        Binding("alt+n", "act('branch')", "Branch: continue from here", id="message.branch"),
        Binding("enter", "fold", "Show or hide its attachments or reasoning", id="message.fold"),
        Binding("alt+o", "act('view')", "Read it in your editor", id="message.view"),
        Binding("left", "act('older')", "Older version", id="message.older"),
        Binding("right", "act('newer')", "Newer version", id="message.newer"),
        Binding("escape", "act('leave')", "Back to prompt", id="message.leave"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._cursor: Message | None = None

    @property
    def messages(self) -> list[Message]:
        """The stored questions and answers, oldest first."""
        return [
            entry
            for entry in self.entries
            if isinstance(entry, Question | Answer) and entry.message is not None
        ]

    @property
    def cursor(self) -> Message | None:
        """The message under the cursor; None if the widget has no focus."""
        return self._cursor if self._cursor in self.messages else None

    def on_focus(self) -> None:
        messages = self.messages
        self._cursor = messages[-1] if messages else None
        self.refresh()

    def on_blur(self) -> None:
        self._cursor = None
        self.refresh()

    def action_move(self, step: int) -> None:
        """Move the cursor to another message, and scroll to it."""
        messages = self.messages
        if not messages:
            return
        place = messages.index(self.cursor) + step if self.cursor else len(messages) - 1
        self._cursor = messages[min(max(place, 0), len(messages) - 1)]
        first = self._window.first_row(self._cursor)
        top = self.scroll_offset.y
        if first is None or not top <= first < top + self.size.height:
            self.go_to_message(self._cursor.message or 0)
        self.refresh()

    def action_fold(self) -> None:
        """Fold or unfold the reasoning or attachments of the message under the cursor."""
        if self.cursor is not None:
            self.cursor.toggle_folds()
            self.update_entry(self.cursor)

    def action_act(self, action: str) -> None:
        """Request one of `MessageActions` for the message under the cursor."""
        self.post_message(MessageActionRequested(action, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Show the next version where `‹ 1/2 ›` is clicked."""
        row = event.y + self.scroll_offset.y
        entry, _ = self.entry_at(row) or (None, 0)
        if isinstance(entry, Question | Answer) and entry.version and self._layout is not None:
            shown = self.rows[row].text.lstrip()
            left = self._layout.margin + len(entry.version) + 2
            if shown == entry.version and self._layout.margin <= event.x <= left:
                event.prevent_default()
                self.post_message(MessageActionRequested("next", entry))

    def _line(self, y: int, base: Style, extent: Extent | None) -> Strip:
        strip = super()._line(y, base, extent)
        found = self.entry_at(y) if self._cursor is not None else None
        if found is None or found[0] is not self._cursor or self._layout is None:
            return strip
        margin = self._layout.margin
        mark = Segment(CURSOR, base + self._layout.styles["accent"])
        return Strip.join([strip.crop(0, margin), Strip([mark]), strip.crop(margin + 1)])
