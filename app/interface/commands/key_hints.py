"""The last line of the screen: the most useful keys in the current situation, which can be clicked.

`ChatScreen.update_hints` chooses between the constants here.
"""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.widgets import Static

from app.interface.keymap import display_key, keymap_of
from app.interface.themes import component_color

Hints = tuple[tuple[str, str], ...]
"""Binding ids with labels, the most useful first."""

NEW_CHAT: Hints = (
    ("prompt.send", "Send"),
    ("models", "Models"),
    ("texts.import", "Import"),
    ("palette", "Commands"),
    ("help", "Help"),
)
READING: Hints = (
    ("answer.again", "Regenerate"),
    ("answer.copy", "Copy"),
    ("chat.new", "New chat"),
    ("palette", "Commands"),
    ("help", "Help"),
)
CUT_OFF: Hints = (
    ("answer.continue", "Continue"),
    ("answer.again", "Regenerate"),
    ("answer.copy", "Copy"),
    ("palette", "Commands"),
    ("help", "Help"),
)
QUEUED: Hints = (
    ("answer.stop", "Stop"),
    ("queue.edit", "Edit queued"),
    ("prompt.send", "Queue"),
    ("palette", "Commands"),
)
ANSWERING: Hints = (
    ("answer.stop", "Stop"),
    ("prompt.send", "Queue"),
    ("tint", "Highlight"),
    ("panel", "Details"),
    ("palette", "Commands"),
)
EDITING: Hints = (
    ("prompt.send", "Send"),
    ("answer.stop", "Cancel"),
    ("question.edit", "Previous"),
    ("prompt.newline", "New line"),
)
BRANCHING: Hints = (
    ("prompt.send", "Send"),
    ("answer.stop", "Cancel"),
    ("branch", "Earlier"),
    ("prompt.newline", "New line"),
)
CHAT_LIST: Hints = (
    ("chats.choose", "Open"),
    ("chats.rename", "Rename"),
    ("chats.delete", "Delete"),
    ("chats.pin", "Pin"),
    ("chats.leave", "Back"),
)

MESSAGES: Hints = (
    ("message.copy", "Copy"),
    ("message.edit", "Edit"),
    ("message.regenerate", "Regenerate"),
    ("message.branch", "Branch"),
    ("message.leave", "Back"),
)

GAP = "  "


class KeyHints(Static):
    """One line of keys, of which the last ones are left out if they do not fit."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-hints--key", "key-hints--label"}

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._hints: Hints = NEW_CHAT
        self._shown: list[tuple[range, str]] = []

    def show(self, hints: Hints) -> None:
        """Show other keys."""
        if hints != self._hints:
            self._hints = hints
            self.refresh()

    def render(self) -> Text:
        key_style, label_style = (
            component_color(self, f"key-hints--{part}") for part in ("key", "label")
        )
        line, width = Text(no_wrap=True), self.content_size.width
        keymap, self._shown = keymap_of(self), []
        for name, label in self._hints:
            keys = keymap.keys(name)
            if not keys:
                continue  # the palette still has the command
            hint = Text.assemble((display_key(keys[0]), key_style), (f" {label}", label_style))
            start = line.cell_len + len(GAP) * bool(line)
            if start + hint.cell_len <= width:
                line.pad_right(start - line.cell_len)
                line.append_text(hint)
                self._shown.append((range(start, line.cell_len), keys[0]))
        return line

    def on_click(self, event: events.Click) -> None:
        """Press the key under the pointer."""
        place = event.get_content_offset(self)
        for cells, key in self._shown:
            if place is not None and place.x in cells:
                self.app.simulate_key(key)
