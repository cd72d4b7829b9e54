"""Boxes to write in: nothing blinks, Tab leaves them, and keys typed in one go keep their order."""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea

from app.sanitise import clean


def writes_text(event: events.Key) -> bool:
    """Whether a key may write its character: `alt+y` comes with a y, but means none."""
    return not event.key.startswith(("alt+", "ctrl+", "super+", "meta+", "hyper+"))


async def run_bindings_in_order(box: Widget, event: events.Key) -> None:
    """Run what `box` binds to a key at once, between the characters typed before and after.

    Textual has the key climb up to the application, and what was typed behind it overtake it; one
    that has priority overtakes what was typed before it. What is pressed with Alt is left to the
    bindings: terminals report it as its letter too.
    """
    if not writes_text(event):
        event.prevent_default()
    bindings = box._bindings.copy()
    bindings.apply_keymap(box.app._keymap)
    for bound in [] if event.is_printable else bindings.key_to_bindings.get(event.key, []):
        if await box.app.run_action(bound.action, box):
            event.stop()
            event.prevent_default()


class LineInput(Input):
    """A single line."""

    def __init__(self, text: str = "", placeholder: str = "", *, selected: bool = True) -> None:
        """`selected`: whether what stands in it is replaced by what is typed."""
        super().__init__(text, placeholder=placeholder, select_on_focus=selected)
        # A blinking cursor would wake the idle machine twice a second.
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        await run_bindings_in_order(self, event)


class TextInput(TextArea):
    """Several lines."""

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
        )
        self.cursor_blink = False

    def write(self, text: str) -> None:
        """Stand for another text, the cursor at its end."""
        self.text = clean(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        await run_bindings_in_order(self, event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Paste as it was meant: terminals send line ends as carriage returns."""
        event.text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
