"""Every command of the interface, once: its name, its key, and what it says of itself.

Key bindings, the help screen and the command palette are all made from this table. `id`s are
stable: they are what keys are remapped by.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from app.interface.keynames import UNBOUND


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        id: stable name.
        title: what it is called.
        help: one line on what it does.
        action: the action of the chat screen that it runs.
        key: keys that run it, separated by commas; none of their own for most.
    """

    id: str
    title: str
    help: str
    action: str
    key: str = UNBOUND

    def binding(self) -> Binding:
        """The binding of its keys."""
        return Binding(self.key, self.action, self.title, id=self.id)


COMMANDS = (
    Command("help", "Help", "Every key, and what the panel means", "help", "f1"),
    Command("panel", "More figures", "Show or hide the raw figures", "more", "f2"),
    Command(
        "tint",
        "Colour words by source",
        "Tint each word of the answers by where it came from",
        "tint",
        "f3",
    ),
    Command(
        "reasoning",
        "Unfold reasoning",
        "Show or fold what the model thought before it answered",
        "reasoning",
        "f4",
    ),
    Command(
        "models",
        "Models",
        "Choose the model that answers, or fetch one from Hugging Face",
        "models",
        "f5",
    ),
    Command("chat.new", "New chat", "Begin an empty chat", "new_chat", "ctrl+n"),
    Command(
        "chat.new-private",
        "New private chat",
        "Begin a chat that is stored, but never drafted from, indexed or trained on",
        "new_chat(True)",
    ),
    Command("chat.rename", "Rename this chat", "Give it another title", "chat('rename')"),
    Command(
        "chat.pin", "Pin this chat", "Keep it at the top of the list, or no longer", "chat('pin')"
    ),
    Command(
        "chat.private",
        "Make this chat private",
        "Keep it out of all drafting from now on, or no longer",
        "chat('private')",
    ),
    Command("chat.delete", "Delete this chat", "Delete it from every store", "chat('delete')"),
    Command(
        "chat.settings",
        "Settings of this chat",
        "Its system prompt and how its answers are drawn; presets",
        "settings",
        "ctrl+s",
    ),
    Command(
        "chat.markdown",
        "Export this chat as Markdown",
        "Write what is being read to a file",
        "chat('markdown')",
    ),
    Command(
        "chat.json",
        "Export this chat as JSON",
        "Write all its versions to a file that specchat can restore",
        "chat('json')",
    ),
    Command("chat.list", "Chats", "Go to the list of chats, or hide it", "chats", "ctrl+o"),
    Command("chat.find", "Search", "Find a chat by words in it", "search", "ctrl+f"),
    Command("chat.newer", "Newer chat", "Go up in the list of chats", "step(-1)", "alt+up"),
    Command("chat.older", "Older chat", "Go down in the list of chats", "step(1)", "alt+down"),
    Command("answer.stop", "Stop", "Stop the answer; what was written stays", "stop", "escape"),
    Command(
        "answer.again", "Answer again", "Have the last question answered anew", "again", "ctrl+r"
    ),
    Command(
        "question.edit",
        "Edit a question",
        "Change the last question; again: the one before",
        "edit",
        "ctrl+t,alt+e",
    ),
    Command(
        "answer.copy",
        "Copy the answer",
        "Copy the last answer as it was written",
        "copy_answer",
        "ctrl+g,alt+c",
    ),
    Command("code.copy", "Copy the code", "Copy its last block of code", "copy_code", "alt+y"),
    Command("version.older", "Older version", "Read an older version", "version(-1)", "alt+left"),
    Command("version.newer", "Newer version", "Read a newer version", "version(1)", "alt+right"),
    Command(
        "attach", "Attach a file", "Put the text of a file before your question", "attach", "f8"
    ),
    Command("texts.import", "Import texts", "Draft answers from texts of yours", "imports", "f9"),
    Command(
        "texts.list",
        "Imported texts",
        "List what was imported, and forget what should go",
        "sources",
    ),
    Command("scroll.start", "First message", "Scroll to the start", "start", "ctrl+home"),
    Command("scroll.end", "Last message", "Scroll to the end", "end", "ctrl+end"),
    Command("theme", "Change the colours", "Choose a theme, dark or light", "theme"),
    Command("copy", "Copy", "Copy the text selected with the mouse", "copy", "ctrl+c"),
    Command("palette", "All commands", "Find a command by its name", "palette", "ctrl+p"),
    Command("quit", "Quit", "Leave; everything written is kept", "quit", "ctrl+q"),
)
