"""A box to write in: nothing blinks, Tab leaves it, and what is pasted is clean."""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea

from app.sanitise import clean


def types(event: events.Key) -> bool:
    """Whether a key may write its character: `alt+y` comes with a y, but means none."""
    return not event.key.startswith(("alt+", "ctrl+", "super+", "meta+", "hyper+"))


class Writing(TextArea):
    """A text area for what people write."""

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
        )
        # A blinking cursor would wake the idle machine twice a second.
        self.cursor_blink = False

    def write(self, text: str) -> None:
        """Stand for another text, the cursor at its end."""
        self.text = clean(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        """Leave what is pressed with Alt to the bindings: terminals report it as its letter too."""
        if not types(event):
            event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        """Paste as it was meant: terminals send line ends as carriage returns."""
        event.text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
