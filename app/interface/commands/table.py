"""Every command of the interface, once: its name, its key, and what it says of itself.

Key bindings, the help screen and the command palette are all made from this table; what each
command does is in `actions.py`. `id`s are stable: keys are remapped by them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial

from rich.text import Text
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.interface.chat.topbar import TUNED
from app.interface.commands.keymap import UNBOUND, keys_of


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        id: stable name.
        title: what it is called.
        help: one line on what it does.
        key: keys that run it, separated by commas; none of their own for most.
    """

    id: str
    title: str
    help: str
    key: str = UNBOUND

    @property
    def action(self) -> str:
        """The action of the chat screen that runs it."""
        return f"command({self.id!r})"

    def binding(self) -> Binding:
        """The binding of its keys."""
        return Binding(self.key, self.action, self.title, id=self.id)


COMMANDS = (
    Command("help", "Help", "Every key, and what the panel means", "f1"),
    Command("panel", "More figures", "Show or hide the raw figures", "f2"),
    Command(
        "tint",
        "Colour words by source",
        "Tint each word of the answers by where it came from",
        "f3",
    ),
    Command(
        "reasoning",
        "Unfold reasoning",
        "Show or fold what the model thought before it answered",
        "f4",
    ),
    Command(
        "models", "Models", "Choose the model that answers, or fetch one from Hugging Face", "f5"
    ),
    Command("chat.new", "New chat", "Begin an empty chat", "ctrl+n"),
    Command(
        "chat.new-private",
        "New private chat",
        "Begin a chat that is stored, but never drafted from, indexed or trained on",
    ),
    Command("chat.rename", "Rename this chat", "Give it another title"),
    Command("chat.pin", "Pin this chat", "Keep it at the top of the list, or no longer"),
    Command(
        "chat.private",
        "Make this chat private",
        "Keep it out of all drafting from now on, or no longer",
    ),
    Command("chat.delete", "Delete this chat", "Delete it from every store"),
    Command(
        "chat.settings",
        f"Settings of this chat ({TUNED})",
        "Its system prompt and how its answers are drawn; presets",
        "ctrl+s",
    ),
    Command("chat.markdown", "Export this chat as Markdown", "Write what is being read to a file"),
    Command(
        "chat.json",
        "Export this chat as JSON",
        "Write all its versions to a file that specchat can restore",
    ),
    Command("chat.list", "Chats", "Go to the list of chats, or hide it", "ctrl+o"),
    Command("chat.find", "Search", "Find a chat by words in it", "ctrl+f"),
    Command("chat.newer", "Newer chat", "Go up in the list of chats", "alt+up"),
    Command("chat.older", "Older chat", "Go down in the list of chats", "alt+down"),
    Command("answer.stop", "Stop", "Stop the answer; what was written stays", "escape"),
    Command("answer.again", "Answer again", "Have the last question answered anew", "ctrl+r"),
    Command(
        "question.edit",
        "Edit a question",
        "Change the last question; again: the one before",
        "ctrl+t,alt+e",
    ),
    Command(
        "answer.copy", "Copy the answer", "Copy the last answer as it was written", "ctrl+g,alt+c"
    ),
    Command("code.copy", "Copy the code", "Copy its last block of code", "alt+y"),
    Command("version.older", "Older version", "Read an older version", "alt+left"),
    Command("version.newer", "Newer version", "Read a newer version", "alt+right"),
    Command("attach", "Attach a file", "Put the text of a file before your question", "f8"),
    Command("texts.import", "Import texts", "Draft answers from texts of yours", "f9"),
    Command("texts.list", "Imported texts", "List what was imported, and forget what should go"),
    Command("scroll.start", "First message", "Scroll to the start", "ctrl+home"),
    Command("scroll.end", "Last message", "Scroll to the end", "ctrl+end"),
    Command("theme", "Change the colours", "Choose a theme, dark or light"),
    Command("copy", "Copy", "Copy the text selected with the mouse", "ctrl+c"),
    Command("palette", "All commands", "Find a command by its name", "ctrl+p"),
    Command("quit", "Quit", "Leave; everything written is kept", "ctrl+q"),
)


LISTED = [command for command in COMMANDS if command.id != "palette"]


class CommandsProvider(Provider):
    """The commands of the table; the palette runs them on the screen it was opened from."""

    async def discover(self) -> Hits:
        for command in LISTED:
            yield DiscoveryHit(
                self._titled(command), self._runs(command), command.title, command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in LISTED:
            score = max(matcher.match(command.title), matcher.match(command.help) / 2)
            if score > 0:
                yield Hit(
                    score,
                    self._titled(command),
                    self._runs(command),
                    command.title,
                    command.help,
                )

    def _runs(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.action)

    def _titled(self, command: Command) -> Text:
        """Title and keys."""
        return Text.assemble(command.title, (f"  {keys_of(self.screen).shown(command.id)}", "dim"))
