"""Text boxes without a blinking cursor, in which fast typing keeps its order.

Textual's text area lays out all lines again for every key. So a long pasted text is shown as its
beginning and end around one placeholder character, which is deleted and undone as a unit. The box's
`text` is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.document._document import Location
from textual.widget import Widget
from textual.widgets import Input, TextArea

from app.sanitise import clean


def writes_text(event: events.Key) -> bool:
    """Whether a key types its character, as `y` does and `alt+y` does not."""
    return not event.key.startswith(("alt+", "ctrl+", "super+", "meta+", "hyper+"))


def types_into(focused: Widget | None, event: events.Event) -> bool:
    """Whether `event` types text, and `focused`, which is not a text box, has no binding for it."""
    if isinstance(event, events.Paste):
        return True
    if not isinstance(event, events.Key) or not event.is_printable or not writes_text(event):
        return False
    return focused is None or event.key not in _bound(focused)


def _bound(widget: Widget) -> Mapping[str, Sequence[Binding]]:
    """The widget's own bindings by key, with the user's keymap applied."""
    bindings = widget._bindings.copy()
    bindings.apply_keymap(widget.app._keymap)
    return bindings.key_to_bindings


def as_pressed(early: Iterable[events.Event]) -> Iterator[events.Event]:
    """Correct the keys that were pressed before the program read any.

    Until the terminal is in raw mode, it turns Enter into a newline, which is Ctrl+J. And Textual,
    which tells Alt from Esc by the pause after it, reads Alt and a letter that arrive in one go as
    a circumflex and the letter.
    """
    circumflex: events.Event | None = None
    for event in early:
        key = event.key if isinstance(event, events.Key) else ""
        if circumflex is not None and len(key) == 1:
            event = events.Key(f"alt+{key}", key)
        elif circumflex is not None:
            yield circumflex
        circumflex = event if key == "circumflex_accent" else None
        if circumflex is None:
            yield events.Key("enter", "\r") if key == "ctrl+j" else event
    if circumflex is not None:
        yield circumflex


async def run_bindings_in_order(box: Widget, event: events.Key) -> None:
    """Run a binding of `box` at once, in order with the characters typed before and after it.

    Textual lets the key bubble up to the application, where characters typed later overtake it; a
    binding with priority overtakes characters typed earlier. Alt with a letter must not type the
    letter, which terminals report too.
    """
    if not writes_text(event):
        event.prevent_default()
    for bound in [] if event.is_printable else _bound(box).get(event.key, []):
        if await box.app.run_action(bound.action, box):
            event.stop()
            event.prevent_default()


MAX_PASTED_CHARACTERS = 4096
"""Maximum for a box of one line, which holds paths, names and search words."""


class LineInput(Input):
    """A box of one line."""

    def __init__(self, text: str = "", placeholder: str = "", *, selected: bool = True) -> None:
        """`selected`: whether typing replaces the initial text."""
        super().__init__(text, placeholder=placeholder, select_on_focus=selected)
        # A blinking cursor would wake the idle machine twice a second.
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        await run_bindings_in_order(self, event)

    def _on_paste(self, event: events.Paste) -> None:
        event.text = clean(event.text[:MAX_PASTED_CHARACTERS])


MAX_SHOWN_CHARACTERS = 20_000
"""Maximum in a box; more would make every key slow."""
ENDS_SHOWN = 200
"""Characters shown at each end of a longer text."""
FOLDED = "▤"
"""Shown in place of folded text."""
FOLDED_NOTICE = (
    f"{{count:,}} characters pasted. {FOLDED} stands for those that are not shown; all are sent."
)
_MARKS = range(0xF0000, 0xFFFFE)
"""Private-use characters, each of which stands for one folded text in one box."""


class TextInput(TextArea):
    """A box of several lines."""

    def __init__(self, placeholder: str = "", *, id: str | None = None) -> None:
        self._folded: dict[str, str] = {}
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
        )
        self.cursor_blink = False

    @property
    def text(self) -> str:
        """The whole text, folded parts included."""
        return self._unfolded(self.document.text)

    @text.setter
    def text(self, value: str) -> None:
        self._folded = {}
        self.load_text(self._shortened(value, MAX_SHOWN_CHARACTERS))

    def get_text_range(self, start: Location, end: Location) -> str:
        """The text between two places, folded parts included."""
        return self._unfolded(super().get_text_range(start, end))

    def get_line(self, line_index: int) -> Text:
        """A line as drawn."""
        line = super().get_line(line_index)
        line.plain = line.plain.translate(dict.fromkeys(map(ord, self._folded), FOLDED))
        return line

    def write(self, text: str) -> None:
        """Replace the text, and move the cursor to its end."""
        self.text = clean(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        await run_bindings_in_order(self, event)

    async def _on_paste(self, event: events.Paste) -> None:
        pasted = clean(event.text)
        room = MAX_SHOWN_CHARACTERS - len(self.document.text)
        event.text = self._shortened(pasted, max(room, 3 * ENDS_SHOWN))
        if event.text != pasted:
            self.notify(FOLDED_NOTICE.format(count=len(pasted)), markup=False, timeout=8)

    def _shortened(self, text: str, room: int) -> str:
        """`text`, folded to its ends if it has more than `room` characters."""
        if len(text) <= room:
            return text
        known = text + self.text
        mark = next(mark for mark in map(chr, _MARKS) if mark not in known)
        self._folded[mark] = text[ENDS_SHOWN:-ENDS_SHOWN]
        return text[:ENDS_SHOWN] + mark + text[-ENDS_SHOWN:]

    def _unfolded(self, text: str) -> str:
        for mark, folded in self._folded.items():
            text = text.replace(mark, folded)
        return text
