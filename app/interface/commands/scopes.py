"""Every place of the interface where keys work: what the help, the settings and the README list."""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.widgets import Input, TextArea

from app.interface.chat.chat_list import Chats
from app.interface.chat.prompt import Prompt
from app.interface.commands.help import Help
from app.interface.commands.keymap import Scope
from app.interface.dialogs.chat_settings import Form
from app.interface.dialogs.confirm import AskLine, Confirm
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
"""Those of the application: they work over whatever is open."""

_ALWAYS = Scope("Always", ALWAYS)
WRITING = [*TextArea.BINDINGS, *Input.BINDINGS]
EVERYWHERE = Scope("Everywhere", ChatScreen.BINDINGS, TextArea.BINDINGS)

SCOPES = (
    EVERYWHERE,
    Scope("In the prompt", Prompt.BINDINGS, TextArea.BINDINGS, EVERYWHERE),
    Scope("In the list of chats", Chats.BINDINGS, None, EVERYWHERE),
    Scope("While searching", ChatSearch.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Among the models", ModelPicker.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("While importing", ImportScreen.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Among the imported texts", SourcesScreen.BINDINGS, None, _ALWAYS),
    Scope("In the settings of a chat", Form.BINDINGS, WRITING, _ALWAYS),
    Scope("Among the presets", PresetList.BINDINGS, None, _ALWAYS),
    Scope("Where a line is asked for", AskLine.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Where yes or no is asked for", Confirm.BINDINGS, None, _ALWAYS),
    Scope("In the help", Help.BINDINGS, None, _ALWAYS),
)
"""In the order in which they are listed."""
