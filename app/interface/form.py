"""The settings of a chat as a form: its system prompt and how its answers are drawn.

Owns what was typed until it is kept, and the way to presets. Bad input is named at its field and
stays there. What is done with the settings is for who opened the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.interface.asking import AskLine, AskWhether
from app.interface.field import Field
from app.interface.keys import keys_of
from app.interface.presets import PresetList
from app.interface.writing import Writing
from app.sampling import NEW_SEED
from app.sanitise import clean, one_line
from app.tuning import Tuning
from datastores.errors import SpecchatError
from datastores.presets import Preset, Presets
from engines.sampler import Sampling

HINTS: Mapping[str, str] = {
    "temperature": "how bold; 0 takes the likeliest word always",
    "top_k": "how many words to choose among; 0 for all",
    "top_p": "only the likeliest, up to this probability",
    "min_p": "none below this share of the likeliest",
    "repeat_penalty": "above 1 keeps it from repeating itself",
    "repeat_window": "how many tokens back that looks",
    "seed": "the same one repeats an answer; -1 is new",
}
"""What each setting is for."""

KEYS = "{form.keep} keeps · {form.presets} presets · {form.save} saves as one · {form.close} closes"
PROMPT = "System prompt, which the model reads before the chat; empty for its own"


class Form(ModalScreen[Tuning | None]):
    """Closes with the settings to keep, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "keep", "Keep the settings", id="form.keep"),
        Binding("ctrl+o", "presets", "Take a preset, or delete one", id="form.presets"),
        Binding("ctrl+t", "save", "Save as a preset", id="form.save"),
        # Textual runs others after what was typed behind them, which would stand in the field left.
        Binding("tab", "app.focus_next", "Next field", id="form.next", priority=True),
        Binding("shift+tab", "app.focus_previous", "Field before", id="form.before", priority=True),
        Binding("up", "above", "Field above", id="form.up", priority=True),
        Binding("down", "below", "Field below", id="form.down", priority=True),
        Binding("escape", "close", "Close", id="form.close"),
    ]

    def __init__(self, tuning: Tuning, defaults: Sampling, presets: Presets) -> None:
        """`defaults` hold where a field is empty."""
        super().__init__()
        self._tuning = tuning
        self._defaults = defaults
        self._presets = presets

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as frame:
            yield Static(PROMPT, markup=False)
            yield Writing()
            for name, value in asdict(self._defaults).items():
                default = "new" if name == "seed" and value == NEW_SEED else str(value)
                yield Field(name, default, HINTS[name])
        frame.border_title = "Settings of this chat"
        frame.border_subtitle = keys_of(self).fill(KEYS)

    def on_mount(self) -> None:
        self._show(self._tuning)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the arrows to the system prompt while it is written."""
        return action not in ("above", "below") or not isinstance(self.focused, Writing)

    def action_above(self) -> None:
        self.focus_previous()

    def action_below(self) -> None:
        self.focus_next()

    @property
    def _fields(self) -> list[Field]:
        return list(self.query(Field))

    def _show(self, tuning: Tuning) -> None:
        self.query_one(Writing).write(tuning.system)
        for line in self._fields:
            line.show(tuning.sampling.get(line.setting))

    def _typed(self) -> Tuning | None:
        """What the form says; None where a field makes no sense, which then has the focus."""
        for line in self._fields:
            line.check()
        wrong = [line for line in self._fields if line.trouble]
        if wrong:
            wrong[0].box.focus()
            return None
        values = {line.setting: line.value() for line in self._fields}
        return Tuning(
            self._system(),
            {name: value for name, value in values.items() if value is not None},
        )

    def _system(self) -> str:
        """The system prompt; one that was not touched is as it was stored, to the byte."""
        written, stored = self.query_one(Writing).text, self._tuning.system
        return stored if written == clean(stored) else written

    @on(Input.Submitted)
    def action_keep(self) -> None:
        tuning = self._typed()
        if tuning is not None:
            self.dismiss(tuning)

    def action_close(self) -> None:
        """Close; what was changed is not thrown away without a question."""
        if not any(line.trouble for line in self._fields) and self._typed() == self._tuning:
            self.dismiss(None)
        else:
            self.app.push_screen(AskWhether("Close without keeping the changes?"), self._leave)

    def _leave(self, sure: bool | None) -> None:
        if sure:
            self.dismiss(None)

    def action_presets(self) -> None:
        self.app.push_screen(PresetList(self._presets), self._take)

    def _take(self, preset: Preset | None) -> None:
        if preset is not None:
            self._show(Tuning(preset.system, preset.sampling))

    def action_save(self) -> None:
        tuning = self._typed()
        if tuning is not None:
            self.app.push_screen(
                AskLine("Save as the preset"), lambda name: self._named(name, tuning)
            )

    def _named(self, name: str | None, tuning: Tuning) -> None:
        """Save under `name`; another preset of that name is not replaced without a question."""
        if not name or not name.strip():
            return
        if " ".join(name.split()) in [preset.name for preset in self._presets.all()]:
            question = f"Replace the preset “{one_line(name, 40)}”?"
            self.app.push_screen(
                AskWhether(question), lambda sure: self._save(name, tuning) if sure else None
            )
        else:
            self._save(name, tuning)

    def _save(self, name: str, tuning: Tuning) -> None:
        try:
            saved = self._presets.save(name, tuning.system, tuning.sampling)
        except SpecchatError as error:
            self.notify(one_line(str(error), 400), severity="error", markup=False)
        else:
            self.notify(f"saved as “{one_line(saved.name, 40)}”", markup=False, timeout=3)
