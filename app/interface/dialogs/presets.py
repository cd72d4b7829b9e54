"""The list of presets, to load or delete one."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList

from app.interface.dialogs.basic import Confirm, ListDialog
from app.interface.keymap import keymap_of
from app.interface.themes import component_color
from app.runtime.history_thread import HistoryThread
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.presets import Preset, Presets
from datastores.errors import SpecchatError

KEY_HINT = "Enter Load · {presets.delete} Delete · {presets.close} Cancel"
NO_PRESETS = "No presets. Press {form.save} in the chat settings to save one."


class PresetList(ListDialog[Preset | None]):
    """Lists all presets by name; closes with one, or None."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"presets--dim"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,d", "delete", "Delete preset", id="presets.delete"),
        Binding("escape", "dismiss", "Close", id="presets.close"),
    ]

    def __init__(self, presets: Presets, history_thread: HistoryThread) -> None:
        super().__init__()
        self._history_thread = history_thread
        self._presets = presets
        self._listed: list[Preset] = []

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            yield OptionList(markup=False)
        frame.border_title = "Presets"

    def on_mount(self) -> None:
        self._list()

    def _list(self) -> None:
        try:
            self._listed = self._presets.all()
        except SpecchatError as error:
            self.show_error(error)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([self._line(preset) for preset in self._listed])
        options.highlighted = 0 if self._listed else None
        self.query_one(Vertical).border_subtitle = keymap_of(self).fill(
            KEY_HINT if self._listed else NO_PRESETS
        )

    def _line(self, preset: Preset) -> Text:
        sampling = [f"{name} {value}" for name, value in preset.sampling.items()]
        settings = one_line(", ".join([*sampling, *filter(None, [preset.system])]), 120)
        dim = component_color(self, "presets--dim")
        name = Text(one_line(preset.name, 40), style=Style(bold=True))
        return Text.assemble(name, (f"  {settings}", dim))

    @on(OptionList.OptionSelected)
    def _taken(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._listed[event.option_index])

    def action_delete(self) -> None:
        chosen = self.query_one(OptionList).highlighted
        if chosen is None:
            return
        preset = self._listed[chosen]

        def confirmed(sure: bool | None) -> None:
            if sure:
                self._delete(preset)

        question = f"Delete the preset “{one_line(preset.name, 40)}”?"
        self.app.push_screen(Confirm(question, "Delete"), confirmed)

    @work
    async def _delete(self, preset: Preset) -> None:
        try:
            await self._history_thread.write(partial(_delete_preset, preset.name))
        except SpecchatError as error:
            self.show_error(error)
        if self.display:
            self._list()


def _delete_preset(name: str, history: History) -> None:
    Presets(history).delete(name)
    history.erase()
