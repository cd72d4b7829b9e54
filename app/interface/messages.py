"""What widgets tell the screen. Messages go up; calls go down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from app.indexing.corpus_index import IndexingProgress
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress


@dataclass
class Submitted(Message):
    """The person sent `text`."""

    text: str


@dataclass
class ChatSelected(Message):
    """The person wants to read chat `chat`."""

    chat: int


@dataclass
class ChatActionRequested(Message):
    """The person wants something done with chat `chat`: an action of `ChatActions`."""

    action: str
    chat: int


@dataclass
class ChatListLeft(Message):
    """The person is done with the list of chats."""


@dataclass
class ScrollRequested(Message):
    """The person scrolls the transcript by `pages` from within the prompt."""

    pages: int


@dataclass
class EventsArrived(Message):
    """Events of the answer wait to be shown."""


@dataclass
class ChatsChanged(Message):
    """A chat was begun, went on, or another one was opened."""


@dataclass
class StatisticsChanged(Message):
    """The session statistics changed."""


@dataclass
class IndexerChanged(Message):
    """The indexer progressed, finished (None) or failed; see `app.indexing.indexer.Indexer`."""

    progress: IndexingProgress | None
    error: SpecchatError | None


@dataclass
class IdleChanged(Message):
    """The progress of idle encoding; None if there is nothing to show, or it failed."""

    progress: EncodingProgress | None
    error: SpecchatError | None
