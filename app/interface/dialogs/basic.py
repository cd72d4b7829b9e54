"""The basic dialogs: a line of text, a confirmation, and a list whose keys work while a box has
the focus.

`notify_error` is how every part of the interface shows an error.
"""

from __future__ import annotations

from typing import ClassVar, Generic

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static

from app.interface.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.sanitise import one_line
from datastores.errors import SpecchatError

MAX_ERROR_CHARS = 400
ERROR_S = 15
"""Seconds that an error is shown: long enough to read what to do."""


class InputDialog(ModalScreen[str | None]):
    """Asks for one line of text; closes with it, or with None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel", id="line.close"),
    ]

    def __init__(
        self, question: str, text: str = "", *, action: str = "Save", cancel: str = "Cancel"
    ) -> None:
        """`action` and `cancel` are verbs for what Enter and Esc do."""
        super().__init__()
        self._question = question
        self._text = one_line(text)
        self._action = action
        self._cancel = cancel

    def compose(self) -> ComposeResult:
        frame = Vertical(LineInput(self._text, selected=False))
        frame.border_title, frame.border_subtitle = (
            self._question,
            keymap_of(self).fill(f"Enter {self._action} · {{line.close}} {self._cancel}"),
        )
        yield frame

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Confirm(ModalScreen[bool | None]):
    """Asks before something that cannot be undone; only `y` confirms."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes", id="sure.yes"),
        Binding("escape,n,enter", "dismiss(False)", "No", id="sure.no"),
    ]

    def __init__(self, question: str, action: str) -> None:
        """`action` is a verb for what `y` does."""
        super().__init__()
        self._question = one_line(question)
        self._action = action

    def compose(self) -> ComposeResult:
        frame = Vertical(Static(Text(self._question), markup=False))
        frame.border_subtitle = keymap_of(self).fill(
            f"{{sure.yes}} {self._action} · {{sure.no}} Cancel"
        )
        yield frame


def list_bindings(scope: str, up: str = "cursor_up", down: str = "cursor_down") -> list[Binding]:
    """Bindings that move a list; `up` and `down` are the list's actions for one line."""
    return [
        Binding("up", f"list({up!r})", "Up", id=f"{scope}.up"),
        Binding("down", f"list({down!r})", "Down", id=f"{scope}.down"),
        Binding("pageup", "list('page_up')", "Page up", id=f"{scope}.page-up"),
        Binding("pagedown", "list('page_down')", "Page down", id=f"{scope}.page-down"),
    ]


class ListDialog(ModalScreen[ScreenResultType], Generic[ScreenResultType]):
    """A dialog that forwards the keys of `list_bindings` to its list."""

    @property
    def list_widget(self) -> Widget:
        """The widget that the keys move."""
        return self.query_one(OptionList)

    async def action_list(self, action: str) -> None:
        await self.list_widget.run_action(action)

    def show_error(self, error: SpecchatError) -> None:
        """Show an error as a notification."""
        notify_error(self, error)


def notify_error(widget: Widget, problem: SpecchatError | str) -> None:
    """Show an error as a notification."""
    line = as_sentence(str(problem), MAX_ERROR_CHARS)
    widget.notify(line, severity="error", markup=False, timeout=ERROR_S)


def as_sentence(error: str, limit: int) -> str:
    """An error's message on one line, capitalised: on the command line it follows `specchat: `."""
    line = one_line(error, limit)
    first = line.partition(" ")[0]
    return line[0].upper() + line[1:] if first.isalpha() else line  # a path or a name stays
