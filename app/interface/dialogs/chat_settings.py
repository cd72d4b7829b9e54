"""The settings of one chat: its system prompt, its sampling settings, where answers end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.chat_settings import (
    DOCS,
    MAX_TOKENS,
    NEW_SEED,
    STOP,
    ChatTuning,
    format_setting,
    parse_setting,
)
from app.config import Config
from app.importing.names import shown_docs, stored_docs
from app.interface.dialogs.basic import Confirm, InputDialog, notify_error
from app.interface.dialogs.presets import PresetList
from app.interface.keymap import keymap_of
from app.interface.text_inputs import LineInput, TextInput
from app.interface.workers import start_worker
from app.runtime.history_thread import HistoryThread
from app.sanitise import clean, one_line
from datastores.chats.presets import Preset, Presets
from datastores.errors import InputError, SpecchatError
from engines.sampler import Sampling

MIN_COLUMNS_HINTS = 60
"""With fewer columns there is no room for the hints."""


class SettingField(Horizontal):
    """One setting: its name, a box for its value, and a hint or an error. An empty box means the
    default."""

    def __init__(self, setting: str, default: str, hint: str) -> None:
        super().__init__()
        self.setting = setting
        self.error = ""
        self._default = default
        self._hint = hint

    def compose(self) -> ComposeResult:
        yield Static(self.setting.replace("_", " "), markup=False, classes="-name")
        yield LineInput(placeholder=self._default)
        yield Static(self._hint, markup=False, classes="-hint")

    @property
    def box(self) -> LineInput:
        return self.query_one(LineInput)

    def value(self) -> int | float | str | list[str] | None:
        """The typed value; None for an empty box.

        Raises:
            InputError: the value is not valid.
        """
        typed = self.box.value.strip()
        return parse_setting(self.setting, typed) if typed else None

    def show(self, value: object) -> None:
        """Put a stored value into the box; None for the default."""
        self.box.value = "" if value is None else format_setting(value)

    @on(Input.Changed)
    def check(self) -> None:
        """Show the value's error, or else the hint."""
        try:
            self.value()
            self.error = ""
        except InputError as error:
            self.error = str(error)
        hint = self.query_one(".-hint", Static)
        hint.update(self.error or self._hint)
        hint.set_class(bool(self.error), "-wrong")


class DocsField(SettingField):
    """The use of imports, whose names stand for the paths that are stored."""

    def __init__(self, default: str, names: Mapping[str, str]) -> None:
        """`names` are those of all imports, by path."""
        super().__init__(DOCS, default, DOCS_HINT)
        self._names = names

    def value(self) -> str | None:
        """The typed value, as it is stored; None for an empty box.

        Raises:
            InputError: it is not valid, or there is no such import.
        """
        typed = self.box.value.strip()
        return stored_docs(typed, self._names) if typed else None

    def show(self, value: object) -> None:
        """Put a stored value into the box; empty for the default."""
        self.box.value = shown_docs(str(value), self._names) if value else ""


SETTING_HINTS: Mapping[str, str] = {
    "temperature": "randomness; 0 = always the likeliest word",
    "top_k": "choose among this many words; 0 = all",
    "top_p": "likeliest words up to this total probability",
    "min_p": "drop words below this share of the best",
    "repeat_penalty": "above 1 = less repetition",
    "repeat_window": "how far back the penalty looks, in tokens",
    "seed": "same seed, same choices; -1 = random",
    MAX_TOKENS: "longest answer",
    STOP: r'end before these: END "two words" "\n\n"',
}
DOCS_HINT = "use of imports: once, iterative, knn or off; then names, to use only these"

KEY_HINT = (
    "{form.keep} Save · {form.presets} Presets · {form.save} Save as preset · {form.close} Cancel"
)
SYSTEM_PROMPT_LABEL = "System prompt (empty = model default)"


class ChatSettingsForm(ModalScreen[ChatTuning | None]):
    """The form; closes with the settings to keep, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "keep", "Save settings", id="form.keep"),
        Binding("ctrl+o", "presets", "Load or delete a preset", id="form.presets"),
        Binding("ctrl+t", "save", "Save as preset", id="form.save"),
        # Without priority, characters typed later would reach the old field first.
        Binding("tab", "app.focus_next", "Next field", id="form.next", priority=True),
        Binding(
            "shift+tab", "app.focus_previous", "Previous field", id="form.before", priority=True
        ),
        Binding("up", "above", "Field above", id="form.up", priority=True),
        Binding("down", "below", "Field below", id="form.down", priority=True),
        Binding("escape", "close", "Close", id="form.close"),
    ]

    def __init__(
        self,
        tuning: ChatTuning,
        defaults: Sampling,
        config: Config,
        presets: Presets,
        history_thread: HistoryThread,
        import_names: Mapping[str, str],
    ) -> None:
        """`defaults` apply to empty fields; presets are saved and deleted on `history_thread`;
        `import_names` are the names of all imports, by path."""
        super().__init__()
        self._tuning = tuning
        self._defaults = defaults
        self._config = config
        self._presets = presets
        self._history_thread = history_thread
        self._import_names = import_names

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as frame:
            yield Static(SYSTEM_PROMPT_LABEL, markup=False)
            yield TextInput()
            for name, value in asdict(self._defaults).items():
                default = "new" if name == "seed" and value == NEW_SEED else str(value)
                yield SettingField(name, default, SETTING_HINTS[name])
            yield SettingField(MAX_TOKENS, str(self._config.max_tokens), SETTING_HINTS[MAX_TOKENS])
            yield SettingField(STOP, "none", SETTING_HINTS[STOP])
            yield DocsField(self._config.docs, self._import_names)
        frame.border_title = "Chat settings"
        frame.border_subtitle = keymap_of(self).fill(KEY_HINT)

    def on_mount(self) -> None:
        self._show(self._tuning)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < MIN_COLUMNS_HINTS, "-narrow")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The arrow keys move the cursor while the system prompt has the focus."""
        return action not in ("above", "below") or not isinstance(self.focused, TextInput)

    def action_above(self) -> None:
        self.focus_previous()

    def action_below(self) -> None:
        self.focus_next()

    @property
    def _fields(self) -> list[SettingField]:
        return list(self.query(SettingField))

    def _show(self, tuning: ChatTuning) -> None:
        self.query_one(TextInput).write(tuning.system)
        for line in self._fields:
            line.show(tuning.docs if line.setting == DOCS else tuning.sampling.get(line.setting))

    def _typed_settings(self) -> ChatTuning | None:
        """The typed settings; None if a field is invalid, which then gets the focus."""
        for line in self._fields:
            line.check()
        wrong = [line for line in self._fields if line.error]
        if wrong:
            wrong[0].box.focus()
            return None
        values = {line.setting: line.value() for line in self._fields}
        docs = values.pop(DOCS)
        return ChatTuning(
            self._system(),
            {name: value for name, value in values.items() if value is not None},
            str(docs or ""),
        )

    def _system(self) -> str:
        """The system prompt; an unchanged one is returned exactly as it was stored."""
        written, stored = self.query_one(TextInput).text, self._tuning.system
        return stored if written == clean(stored) else written

    @on(Input.Submitted)
    def action_keep(self) -> None:
        tuning = self._typed_settings()
        if tuning is not None:
            self.dismiss(tuning)

    def action_close(self) -> None:
        """Close, after a confirmation if something was changed."""
        if not any(line.error for line in self._fields) and self._typed_settings() == self._tuning:
            self.dismiss(None)
        else:
            self.app.push_screen(Confirm("Discard the changes?", "Discard"), self._leave)

    def _leave(self, sure: bool | None) -> None:
        if sure:
            self.dismiss(None)

    def action_presets(self) -> None:
        self.app.push_screen(PresetList(self._presets, self._history_thread), self._load)

    def _load(self, preset: Preset | None) -> None:
        if preset is not None:
            typed = self.query_one(DocsField).box.value
            self._show(ChatTuning(preset.system, preset.sampling))
            self.query_one(DocsField).box.value = typed

    def action_save(self) -> None:
        tuning = self._typed_settings()
        if tuning is not None:
            self.app.push_screen(
                InputDialog("Save as preset"), lambda name: self._name_preset(name, tuning)
            )

    def _name_preset(self, name: str | None, tuning: ChatTuning) -> None:
        """Save as `name`, after a confirmation if a preset has this name."""
        if not name or not name.strip():
            return
        if " ".join(name.split()) in [preset.name for preset in self._presets.all()]:
            question = f"Replace the preset “{one_line(name, 40)}”?"
            self.app.push_screen(
                Confirm(question, "Replace"),
                lambda sure: self._save(name, tuning) if sure else None,
            )
        else:
            self._save(name, tuning)

    def _save(self, name: str, tuning: ChatTuning) -> None:
        start_worker(self.app, self._store_preset, name, tuning)

    async def _store_preset(self, name: str, tuning: ChatTuning) -> None:
        try:
            saved = await self._history_thread.write(
                lambda history: Presets(history).save(name, tuning.system, tuning.sampling)
            )
        except SpecchatError as error:
            notify_error(self, error)
        else:
            message = f"Saved as “{one_line(saved.name, 40)}”."
            self.app.notify(message, markup=False, timeout=3)
