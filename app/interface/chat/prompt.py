"""The prompt: where the person writes.

Owns its keys (Enter sends, others make a newline), growing with the text, and recalling what was
asked before. Sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from app.interface.messages import ScrollRequested, Submitted
from app.interface.text_inputs import TextInput
from app.sanitise import clean


class Prompt(TextInput):
    """A text area that sends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", id="prompt.send"),
        Binding("ctrl+j,shift+enter", "newline", "New line", id="prompt.newline"),
        Binding("up", "cursor_up", "Up, or what was asked before", id="prompt.up"),
        Binding("pageup", "scroll(-1)", "Scroll up", id="prompt.scroll-up"),
        Binding("pagedown", "scroll(1)", "Scroll down", id="prompt.scroll-down"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Ask anything", id=id)
        self._asked: Sequence[str] = ()
        self._recalled: int | None = None

    def remember(self, asked: Sequence[str]) -> None:
        """Take what can be recalled, oldest first."""
        self._asked = [clean(text) for text in asked]
        self._recalled = None

    def put_back(self, text: str) -> None:
        """Return a text that could not be sent, before whatever was written since."""
        written = self.text
        self.write(f"{text}\n{written}" if written.strip() else text)

    def action_send(self) -> None:
        """Send what is written; what is typed from now on is the next text."""
        text = self.text
        if text.strip():
            self.clear()
            self.post_message(Submitted(text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_scroll(self, pages: int) -> None:
        self.post_message(ScrollRequested(pages))

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up; in an empty prompt, or while recalling, recall what was asked before that."""
        if select or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down; while recalling, recall what was asked after that."""
        if select or not self._recall(1):
            super().action_cursor_down(select)

    def _recall(self, step: int) -> bool:
        """Step through what was asked; whether this was possible."""
        at = len(self._asked) if not self.text else self._place()
        if at is None or not 0 <= at + step <= len(self._asked) or (step > 0 and not self.text):
            return False
        self._recalled = at + step
        self.text = self._asked[self._recalled] if self._recalled < len(self._asked) else ""
        self.move_cursor(self.document.end)
        return True

    def _place(self) -> int | None:
        """Which question stands in the prompt, untouched; None where none does."""
        if self._recalled is None or self._recalled >= len(self._asked):
            return None
        return self._recalled if self.text == self._asked[self._recalled] else None
