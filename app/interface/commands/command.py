"""What a command of the interface is, and what it may ask of the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from textual.app import App
from textual.binding import Binding

from app.interface.chat.chat_actions import ChatActions
from app.interface.chat.chat_navigation import ChatNavigation
from app.interface.chat.conversation import Conversation
from app.interface.chat.copy import CopyActions
from app.interface.chat.editor_actions import EditorActions
from app.interface.chat.retrieval_actions import RetrievalActions
from app.interface.chat.settings_actions import ChatSettings
from app.interface.chat.thread_actions import ThreadActions
from app.interface.imports.text_actions import TextActions
from app.interface.keymap import UNBOUND
from app.interface.models.switch import ModelSwitch


class CommandTarget(Protocol):
    """What the commands need of the chat screen."""

    conversation: Conversation
    chat_actions: ChatActions
    chat_settings: ChatSettings
    copy_actions: CopyActions
    retrieval_actions: RetrievalActions
    editor_actions: EditorActions
    model_switch: ModelSwitch
    navigation: ChatNavigation
    text_actions: TextActions
    thread_actions: ThreadActions

    @property
    def app(self) -> App[object]: ...

    def act_on_chat(self, action: str) -> None:
        """Run one of `ChatActions` on the open chat."""

    def toggle_details(self) -> None: ...

    def show_statistics(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        id: stable name.
        help: one line on what it does.
        key: default keys, separated by commas.
        slash: name as a slash command, without the slash, or empty.
        argument: argument of the slash command, as shown in help; empty for none.
        run_with: runs it with the argument; None if it takes none.
    """

    id: str
    title: str
    help: str
    run: Callable[[CommandTarget], object]
    key: str = UNBOUND
    slash: str = ""
    argument: str = ""
    run_with: Callable[[CommandTarget, str], object] | None = None

    @property
    def action(self) -> str:
        """The action string of the chat screen that runs it."""
        return f"command({self.id!r})"

    def binding(self) -> Binding:
        """The binding of its keys."""
        return Binding(self.key, self.action, self.title, id=self.id)
