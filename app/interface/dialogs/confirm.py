"""One-line questions: `InputDialog` asks for a text, `Confirm` for yes or no."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.interface.commands.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.sanitise import one_line


class InputDialog(ModalScreen[str | None]):
    """Asks for one line of text; closes with it, or with None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel", id="line.close"),
    ]

    def __init__(
        self, question: str, text: str = "", *, action: str = "Save", cancel: str = "Cancel"
    ) -> None:
        """`action` is what Enter does, `cancel` what Esc does, as verbs."""
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
    """Asks before something that cannot be undone; only `y` agrees."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes", id="sure.yes"),
        Binding("escape,n,enter", "dismiss(False)", "No", id="sure.no"),
    ]

    def __init__(self, question: str, action: str) -> None:
        """`action` is what `y` does, as a verb."""
        super().__init__()
        self._question = one_line(question)
        self._action = action

    def compose(self) -> ComposeResult:
        frame = Vertical(Static(Text(self._question), markup=False))
        frame.border_subtitle = keymap_of(self).fill(
            f"{{sure.yes}} {self._action} · {{sure.no}} Cancel"
        )
        yield frame
