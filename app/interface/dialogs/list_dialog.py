"""A modal dialog around one list that never has the focus: its keys move the list all the same.

Owns those keys, and how a dialog shows an error. What is listed is up to the subclass.
"""

from __future__ import annotations

from typing import Generic

from textual.binding import Binding
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import OptionList

from app.sanitise import one_line
from datastores.errors import SpecchatError


def list_bindings(scope: str, up: str = "cursor_up", down: str = "cursor_down") -> list[Binding]:
    """The keys that move a list; `up` and `down` are the list's actions for one line."""
    return [
        Binding("up", f"list({up!r})", "Up", id=f"{scope}.up"),
        Binding("down", f"list({down!r})", "Down", id=f"{scope}.down"),
        Binding("pageup", "list('page_up')", "Page up", id=f"{scope}.page-up"),
        Binding("pagedown", "list('page_down')", "Page down", id=f"{scope}.page-down"),
    ]


class ListDialog(ModalScreen[ScreenResultType], Generic[ScreenResultType]):
    """Passes the keys of `list_bindings` on to its list."""

    @property
    def list_widget(self) -> Widget:
        """The widget that the keys move."""
        return self.query_one(OptionList)

    async def action_list(self, action: str) -> None:
        await self.list_widget.run_action(action)

    def show_error(self, error: SpecchatError) -> None:
        """Show an error as a notification."""
        self.notify(one_line(str(error), 400), severity="error", markup=False)
