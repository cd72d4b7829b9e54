"""The word to complete at the cursor (`target`), and the list of its completions (`Suggestions`).

Slash commands and their arguments are completed, and paths after an `@`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from app.interface.themes import component_color
from app.sanitise import one_line

MAX_LINES = 8
"""Visible lines of the list."""
MAX_SUGGESTIONS = 60
_ROW = "row"
"""Key of style metadata: index of the suggestion on a line."""

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/[A-Za-z-]*$")
_MODEL_ARGUMENT = re.compile(r"/model\s+(.*)$")
_DOCS_ARGUMENT = re.compile(r'/docs(?:\s+(?:"[^"]*"|[^\s"]+))*\s+("[^"]*|[^\s"]*)$')
_PATH_ARGUMENT = re.compile(r"/(?:attach|import)\s+(.*)$")


@dataclass(frozen=True, slots=True)
class CompletionSpan:
    """The word to complete.

    Attributes:
        kind: `COMMAND`, `MENTION` (a path after `@`), `ARGUMENT` (a path after a slash command),
            `MODEL` (a name after `/model`) or `USE` (a word after `/docs`).
        start: column at which the replaced text begins.
        typed: the word so far, without the `@`.
    """

    kind: str
    start: int
    typed: str


COMMAND, MENTION, ARGUMENT, MODEL, USE = "command", "mention", "argument", "model", "use"


def target(line: str, *, first: bool) -> CompletionSpan | None:
    """The word to complete at the end of `line`, the text before the cursor; None if there is none.

    Args:
        first: whether it is the first line of the prompt, the only one with slash commands.
    """
    if first and _COMMAND.match(line):
        return CompletionSpan(COMMAND, 0, line)
    if first and (found := _PATH_ARGUMENT.match(line)):
        return CompletionSpan(ARGUMENT, found.start(1), found[1])
    if first and (found := _MODEL_ARGUMENT.match(line)):
        return CompletionSpan(MODEL, found.start(1), found[1])
    if first and (found := _DOCS_ARGUMENT.match(line)):
        return CompletionSpan(USE, found.start(1), found[1])
    if found := _MENTION.search(line):
        return CompletionSpan(MENTION, found.start(), found[1])
    return None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One completion: the text to insert, and a remark on it."""

    text: str
    detail: str = ""


@dataclass
class SuggestionClicked(Message):
    """The person clicked on a suggestion, which is now highlighted."""


class Suggestions(Static):
    """The list of suggestions; hidden while it is empty."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "suggestions--dim",
        "suggestions--accent",
        "suggestions--cursor",
    }

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._all: Sequence[Suggestion] = ()
        self._cursor = 0

    def on_mount(self) -> None:
        self.display = False

    @property
    def chosen(self) -> Suggestion | None:
        """The highlighted suggestion, if any."""
        return self._all[self._cursor] if self._all else None

    def show(self, suggestions: Sequence[Suggestion]) -> None:
        """Show `suggestions`, the first one highlighted."""
        self._all, self._cursor = tuple(suggestions[:MAX_SUGGESTIONS]), 0
        self.display = bool(self._all)
        self.refresh(layout=True)

    def move(self, step: int) -> None:
        """Highlight the suggestion `step` lines down, wrapping around at the ends."""
        self._cursor = (self._cursor + step) % max(1, len(self._all))
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        row = event.style.meta.get(_ROW, -1)
        if 0 <= row < len(self._all):
            self._cursor = row
            self.post_message(SuggestionClicked())

    def render(self) -> Text:
        width = max(20, self.content_size.width or self.size.width)
        first = min(max(0, self._cursor - MAX_LINES + 1), max(0, len(self._all) - MAX_LINES))
        shown = self._all[first : first + MAX_LINES]
        widths = (cell_len(one.text) for one in shown if one.detail)
        column = min(max(widths, default=0) + 2, width // 2)
        lines = [self._line(first + at, one, column, width) for at, one in enumerate(shown)]
        return Text("\n").join(lines)

    def _line(self, index: int, suggestion: Suggestion, column: int, width: int) -> Text:
        dim, accent = (component_color(self, f"suggestions--{kind}") for kind in ("dim", "accent"))
        line = Text(no_wrap=True)
        line.append("› " if index == self._cursor else "  ", accent)
        text = one_line(suggestion.text, width)
        line.append(text + " " * (column - cell_len(text)))
        line.append(suggestion.detail, dim)
        line.truncate(width, overflow="ellipsis", pad=True)
        if index == self._cursor:
            line.stylize(self.get_component_rich_style("suggestions--cursor").background_style)
        line.stylize(Style.from_meta({_ROW: index}))
        return line
