"""Every place of the interface where keys work."""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.widgets import Input, TextArea

from app.interface.chat.chat_list import ChatList
from app.interface.chat.imported_chat import ImportedChatView
from app.interface.chat.prompt import Prompt
from app.interface.commands.help import Help
from app.interface.dialogs.basic import Confirm, InputDialog
from app.interface.dialogs.chat_settings import ChatSettingsForm
from app.interface.dialogs.cited_passages import CitedPassages
from app.interface.dialogs.presets import PresetList
from app.interface.dialogs.search import ChatSearch
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.imports_screen import ImportsScreen
from app.interface.keymap import Scope
from app.interface.models.picker import ModelPicker
from app.interface.screen import ChatScreen
from app.interface.statistics.statistics_screen import StatisticsScreen
from app.interface.transcript.message_list import MessageList

ALWAYS: list[BindingType] = [
    Binding("ctrl+q", "quit", "Quit", id="quit", priority=True),
    Binding("ctrl+p", "command_palette", "All commands", id="palette", priority=True),
]
"""Bindings of the application, which work in every screen and dialog."""

_ALWAYS = Scope("Always", ALWAYS)
_TEXT_BOXES = [*TextArea.BINDINGS, *Input.BINDINGS]
EVERYWHERE = Scope("Everywhere", ChatScreen.BINDINGS, TextArea.BINDINGS, text_box_name="the prompt")

SCOPES = (
    EVERYWHERE,
    Scope("Prompt", Prompt.BINDINGS, TextArea.BINDINGS, EVERYWHERE, "the prompt"),
    Scope("Chat list", ChatList.BINDINGS, None, EVERYWHERE),
    Scope("Imported chat", ImportedChatView.BINDINGS, None, _ALWAYS),
    Scope("Messages", MessageList.BINDINGS, None, EVERYWHERE),
    Scope("Search", ChatSearch.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Model picker", ModelPicker.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Import", ImportScreen.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Imported files", ImportsScreen.BINDINGS, None, _ALWAYS),
    Scope("Citations of an answer", CitedPassages.BINDINGS, None, _ALWAYS),
    Scope("Chat settings", ChatSettingsForm.BINDINGS, _TEXT_BOXES, _ALWAYS),
    Scope("Presets", PresetList.BINDINGS, None, _ALWAYS),
    Scope("Text input", InputDialog.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Confirmation", Confirm.BINDINGS, None, _ALWAYS),
    Scope("Help", Help.BINDINGS, Input.BINDINGS, _ALWAYS),
    Scope("Statistics", StatisticsScreen.BINDINGS, None, _ALWAYS),
)
"""In the order of the help screen and the generated page; each screen with bindings has a line."""
