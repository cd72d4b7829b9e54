"""Messages from widgets and threads to the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from app.indexing.corpus_index import IndexingProgress
from app.interface.slash_commands import SlashLine
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.conversation.citations import Citation
    from app.conversation.imported_chats import ImportedChat
    from app.runtime.idle_encoding import EncodingProgress
    from app.runtime.learning import LearningNews


@dataclass
class Submitted(Message):
    """The user sent `text`."""

    text: str


@dataclass
class CommandEntered(Message):
    """The user sent `text`, a slash command, which parses as `line`."""

    text: str
    line: SlashLine


@dataclass
class ChatSelected(Message):
    """The user chose chat `chat` in the list."""

    chat: int


@dataclass
class ImportedChatSelected(Message):
    """The user chose an imported chat, to be shown at the message with the number `message`."""

    chat: ImportedChat
    message: int | None = None


@dataclass
class ImportedChatsToggled(Message):
    """The user shows or hides imported chats in the list."""


@dataclass
class ChatActionRequested(Message):
    """The user requested an action of `ChatActions` on chat `chat`."""

    action: str
    chat: int


@dataclass
class ChatListLeft(Message):
    """The user left the list of chats for the prompt."""


@dataclass
class CitationChosen(Message):
    """The user chose a citation, by its index, below an answer."""

    citations: Sequence[Citation]
    index: int


@dataclass
class ScrollRequested(Message):
    """The user scrolled the transcript by `pages` from the prompt."""

    pages: int


@dataclass
class EventsArrived(Message):
    """Events of the answer are in the queue."""


@dataclass
class ChatsChanged(Message):
    """A chat was created, changed or opened."""


@dataclass
class ChatShown(Message):
    """A chat was opened, or its title or privacy changed; the title is empty for a new one."""

    title: str
    private: bool


@dataclass
class CommandsAnswered(Message):
    """The number of commands (`specchat ask`) that the open model is answering changed."""

    commands: int


@dataclass
class AnswerEnded(Message):
    """An answer in the chat `title` ended by itself or failed, after `seconds`."""

    title: str
    private: bool
    seconds: float
    failed: bool


@dataclass
class MomentChanged(Message):
    """What the user can do next changed: an answer or an edit began or ended."""


@dataclass
class StatisticsChanged(Message):
    """The session statistics changed."""


@dataclass
class IndexerChanged(Message):
    """The indexer progressed, finished (None) or failed."""

    progress: IndexingProgress | None
    error: SpecchatError | None


@dataclass
class IdleChanged(Message):
    """Idle encoding progressed, has nothing to do (None) or failed."""

    progress: EncodingProgress | None
    error: SpecchatError | None


@dataclass
class LearningChanged(Message):
    """Learning progressed, waits, has nothing to show (None) or failed."""

    progress: LearningNews
    error: SpecchatError | None
