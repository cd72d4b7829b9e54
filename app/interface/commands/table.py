"""Every command of the interface, once: its name, its keys, what it is for, and what it runs.

A new command is a new row of `COMMANDS`. Key bindings, the help screen and the command palette are
all made from this table. Ids are stable: people's settings remap keys by them.

Refuses to know how a command is carried out: a row calls one method of the part it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.interface.chat.chat_actions import ChatActions, TextActions
from app.interface.chat.conversation import Conversation
from app.interface.chat.copy import CopyActions
from app.interface.chat.topbar import TUNED
from app.interface.commands.help import Help
from app.interface.commands.keymap import UNBOUND, keymap_of
from app.interface.dialogs.chat_settings import ChatSettings
from app.interface.models.switch import ModelSwitch


class CommandTarget(Protocol):
    """What the commands need of the chat screen: its parts, and what concerns several of them."""

    conversation: Conversation
    chat_actions: ChatActions
    chat_settings: ChatSettings
    copy_actions: CopyActions
    model_switch: ModelSwitch
    text_actions: TextActions

    @property
    def app(self) -> App[object]: ...

    def act_on_chat(self, action: str) -> None:
        """Run one of `ChatActions` on the open chat."""

    def search(self) -> None: ...

    def open_neighbour(self, step: int) -> None: ...

    def toggle_list(self) -> None: ...

    def toggle_details(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        id: stable name.
        title: what it is called.
        help: one line on what it does.
        run: runs it.
        key: default keys, separated by commas; most commands have none.
    """

    id: str
    title: str
    help: str
    run: Callable[[CommandTarget], object]
    key: str = UNBOUND

    @property
    def action(self) -> str:
        """The action of the chat screen that runs it."""
        return f"command({self.id!r})"

    def binding(self) -> Binding:
        """The binding of its keys."""
        return Binding(self.key, self.action, self.title, id=self.id)


def _toggle_tint(screen: CommandTarget) -> None:
    transcript = screen.conversation.transcript
    transcript.sources_highlighted = not transcript.sources_highlighted


COMMANDS = (
    Command(
        "help",
        "Help",
        "Every key, and what the panel means",
        lambda screen: screen.app.push_screen(Help()),
        "f1",
    ),
    Command(
        "panel",
        "More figures",
        "Show or hide the raw figures",
        lambda screen: screen.toggle_details(),
        "f2",
    ),
    Command(
        "tint",
        "Colour words by source",
        "Tint each word of the answers by where it came from",
        _toggle_tint,
        "f3",
    ),
    Command(
        "reasoning",
        "Unfold reasoning",
        "Show or fold what the model thought before it answered",
        lambda screen: screen.conversation.transcript.toggle_reasoning(),
        "f4",
    ),
    Command(
        "models",
        "Models",
        "Choose the model that answers, or fetch one from Hugging Face",
        lambda screen: screen.model_switch.pick(),
        "f5",
    ),
    Command(
        "chat.new",
        "New chat",
        "Begin an empty chat",
        lambda screen: screen.conversation.open(None),
        "ctrl+n",
    ),
    Command(
        "chat.new-private",
        "New private chat",
        "Begin a chat that is stored, but never drafted from, indexed or trained on",
        lambda screen: screen.conversation.open(None, private=True),
    ),
    Command(
        "chat.rename",
        "Rename this chat",
        "Give it another title",
        lambda screen: screen.act_on_chat("rename"),
    ),
    Command(
        "chat.pin",
        "Pin this chat",
        "Keep it at the top of the list, or no longer",
        lambda screen: screen.act_on_chat("pin"),
    ),
    Command(
        "chat.private",
        "Make this chat private",
        "Keep it out of all drafting from now on, or no longer",
        lambda screen: screen.act_on_chat("private"),
    ),
    Command(
        "chat.delete",
        "Delete this chat",
        "Delete it from every store",
        lambda screen: screen.act_on_chat("delete"),
    ),
    Command(
        "chat.settings",
        f"Settings of this chat ({TUNED})",
        "Its system prompt and how its answers are drawn; presets",
        lambda screen: screen.chat_settings.open(),
        "ctrl+s",
    ),
    Command(
        "chat.markdown",
        "Export this chat as Markdown",
        "Write what is being read to a file",
        lambda screen: screen.act_on_chat("markdown"),
    ),
    Command(
        "chat.json",
        "Export this chat as JSON",
        "Write all its versions to a file that specchat can restore",
        lambda screen: screen.act_on_chat("json"),
    ),
    Command(
        "chat.list",
        "Chats",
        "Go to the list of chats, or hide it",
        lambda screen: screen.toggle_list(),
        "ctrl+o",
    ),
    Command(
        "chat.find",
        "Search",
        "Find a chat by words in it",
        lambda screen: screen.search(),
        "ctrl+f",
    ),
    Command(
        "chat.newer",
        "Newer chat",
        "Go up in the list of chats",
        lambda screen: screen.open_neighbour(-1),
        "alt+up",
    ),
    Command(
        "chat.older",
        "Older chat",
        "Go down in the list of chats",
        lambda screen: screen.open_neighbour(1),
        "alt+down",
    ),
    Command(
        "answer.stop",
        "Stop",
        "Stop the answer; what was written stays",
        lambda screen: screen.conversation.stop(),
        "escape",
    ),
    Command(
        "answer.again",
        "Answer again",
        "Have the last question answered anew",
        lambda screen: screen.conversation.regenerate(),
        "ctrl+r",
    ),
    Command(
        "question.edit",
        "Edit a question",
        "Change the last question; again: the one before",
        lambda screen: screen.conversation.edit(),
        "ctrl+t,alt+e",
    ),
    Command(
        "answer.copy",
        "Copy the answer",
        "Copy the last answer as it was written",
        lambda screen: screen.copy_actions.copy_answer(),
        "ctrl+g,alt+c",
    ),
    Command(
        "code.copy",
        "Copy the code",
        "Copy its last block of code",
        lambda screen: screen.copy_actions.copy_code(),
        "alt+y",
    ),
    Command(
        "version.older",
        "Older version",
        "Read an older version",
        lambda screen: screen.conversation.switch_version(-1),
        "alt+left",
    ),
    Command(
        "version.newer",
        "Newer version",
        "Read a newer version",
        lambda screen: screen.conversation.switch_version(1),
        "alt+right",
    ),
    Command(
        "attach",
        "Attach a file",
        "Put the text of a file before your question",
        lambda screen: screen.text_actions.attach_file(),
        "f8",
    ),
    Command(
        "texts.import",
        "Import texts",
        "Draft answers from texts of yours",
        lambda screen: screen.text_actions.open_import(),
        "f9",
    ),
    Command(
        "texts.list",
        "Imported texts",
        "List what was imported, and forget what should go",
        lambda screen: screen.text_actions.list_sources(),
    ),
    Command(
        "scroll.start",
        "First message",
        "Scroll to the start",
        lambda screen: screen.conversation.transcript.go_to_start(),
        "ctrl+home",
    ),
    Command(
        "scroll.end",
        "Last message",
        "Scroll to the end",
        lambda screen: screen.conversation.transcript.follow(),
        "ctrl+end",
    ),
    Command(
        "theme",
        "Change the colours",
        "Choose a theme, dark or light",
        lambda screen: screen.app.action_change_theme(),
    ),
    Command(
        "copy",
        "Copy",
        "Copy the text selected with the mouse",
        lambda screen: screen.copy_actions.copy_selection(),
        "ctrl+c",
    ),
    Command(
        "palette",
        "All commands",
        "Find a command by its name",
        lambda screen: screen.app.action_command_palette(),
        "ctrl+p",
    ),
    Command(
        "quit",
        "Quit",
        "Leave; everything written is kept",
        lambda screen: screen.app.exit(),
        "ctrl+q",
    ),
)

RUN = {command.id: command.run for command in COMMANDS}
"""What each command runs, by its id."""

PALETTE_COMMANDS = [command for command in COMMANDS if command.id != "palette"]


class CommandsProvider(Provider):
    """The commands of the table; the palette runs them on the screen it was opened from."""

    async def discover(self) -> Hits:
        for command in PALETTE_COMMANDS:
            yield DiscoveryHit(
                self._title_with_keys(command), self._callback(command), command.title, command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in PALETTE_COMMANDS:
            score = max(matcher.match(command.title), matcher.match(command.help) / 2)
            if score > 0:
                yield Hit(
                    score,
                    self._title_with_keys(command),
                    self._callback(command),
                    command.title,
                    command.help,
                )

    def _callback(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.action)

    def _title_with_keys(self, command: Command) -> Text:
        """Title and keys."""
        return Text.assemble(
            command.title, (f"  {keymap_of(self.screen).display(command.id)}", "dim")
        )
