"""Every place of the interface where keys work.

The help screen, the checks of remapped keys and the README list them in this order. A new screen or
dialog with bindings gets its line in `SCOPES`.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.widgets import Input, TextArea

from app.interface.chat.chat_list import ChatList
from app.interface.chat.prompt import Prompt
from app.interface.commands.help import Help
from app.interface.commands.keymap import Scope
from app.interface.dialogs.chat_settings import ChatSettingsForm
from app.interface.dialogs.confirm import Confirm, InputDialog
from app.interface.dialogs.presets import PresetList
from app.interface.dialogs.search import ChatSearch
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.sources_screen import SourcesScreen
from app.interface.models.picker import ModelPicker
from app.interface.screen import ChatScreen

ALWAYS: list[BindingType] = [
    Binding("ctrl+q", "quit", "Quit", id="quit", priority=True),
    Binding("ctrl+p", "command_palette", "All commands", id="palette", priority=True),
]
"""Those of the application: they work in every screen and dialog."""

_ALWAYS = Scope("Always", ALWAYS)
_TEXT_BOXES = [*TextArea.BINDINGS, *Input.BINDINGS]
EVERYWHERE = Scope("Everywhere", ChatScreen.BINDINGS, TextArea.BINDINGS)

SCOPES = (
    EVERYWHERE,
    Scope("In the prompt", Prompt.BINDINGS, TextArea.BINDINGS, EVERYWHERE),
    Scope("In the list of chats", ChatList.BINDINGS, None, EVERYWHERE),
    Scope("While searching", ChatSearch.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Among the models", ModelPicker.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("While importing", ImportScreen.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Among the imported texts", SourcesScreen.BINDINGS, None, _ALWAYS),
    Scope("In the settings of a chat", ChatSettingsForm.BINDINGS, _TEXT_BOXES, _ALWAYS),
    Scope("Among the presets", PresetList.BINDINGS, None, _ALWAYS),
    Scope("Where a line is asked for", InputDialog.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Where yes or no is asked for", Confirm.BINDINGS, None, _ALWAYS),
    Scope("In the help", Help.BINDINGS, None, _ALWAYS),
)
"""In the order in which they are listed."""
