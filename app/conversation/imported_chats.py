"""Chats of other programs, as they were imported: listed, read, searched, and continued as a copy.

They are documents of the library and stay there: nothing here stores their texts again, except the
copy of a chat that the person continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from time import time

from app.conversation.citations import Citation
from app.indexing.document_chunks import exchange
from app.indexing.passage_index import open_passages
from app.locations import Locations
from datastores.chats.history import History, restore_chat
from datastores.chats.records import ASSISTANT, USER, WHOLE, Chat, StoredMessage
from datastores.chats.search import Excerpt, excerpt, spans_of
from datastores.errors import InputError
from datastores.library.documents import CHATS, Part, split_title
from datastores.library.library import Library
from datastores.passages.store import PassageStore
from datastores.search_form import fold
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.question_words import split_words

MAX_CANDIDATES = 200
"""Passages with a typed word that are read for all of them."""
MAX_TITLE_HITS = 10
MAX_HITS = 30
GONE = "this chat is no longer imported"


@dataclass(frozen=True, slots=True)
class ImportedChat:
    """A chat in the library.

    Attributes:
        key: of its text in the library.
        date: the day it began, as `2025-08-12`; empty if unknown.
        updated: that day in seconds since 1970, or 0, to list it among other chats.
    """

    key: bytes
    title: str
    date: str
    import_name: str
    updated: float


@dataclass(frozen=True, slots=True)
class ImportedHit:
    """A match in an imported chat.

    Attributes:
        message: number of the message, from 0; None for a hit in the title.
        role: the message's role; empty for a title.
        excerpt: the text around the hit, on one line, not sanitised.
    """

    chat: ImportedChat
    message: int | None
    role: str
    excerpt: Excerpt

    @property
    def title(self) -> str:
        """The chat's title."""
        return self.chat.title

    @property
    def created(self) -> float:
        """When the chat began, in seconds since 1970."""
        return self.chat.updated


def imported_chats(library: Library) -> list[ImportedChat]:
    """All imported chats, newest first.

    Raises:
        StoreError: the library cannot be read.
    """
    chats = []
    for key, place in library.documents(CHATS):
        title, date = split_title(place.title)
        chats.append(ImportedChat(key, title, date, place.import_name, _seconds(date)))
    return sorted(chats, key=lambda chat: (-chat.updated, chat.title, chat.key))


def cited_chat(cited: Citation, key: bytes) -> ImportedChat:
    """The chat of a citation whose text has the key `key`."""
    title, date = split_title(cited.chat)
    return ImportedChat(key, title, date, cited.import_name, _seconds(date))


def _seconds(date: str) -> float:
    """The start of a day in local time; 0 if there is no such day."""
    try:
        return datetime.fromisoformat(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def read_messages(library: Library, chat: ImportedChat) -> list[StoredMessage]:
    """The messages of a chat as one path, numbered from 1.

    Raises:
        InputError: it is no longer imported.
        StoreError: the library cannot be read.
    """
    parts = library.read(chat.key)
    if not parts:
        raise InputError(GONE)
    return [_message(number, part, chat) for number, part in enumerate(parts, start=1)]


def _message(number: int, part: Part, chat: ImportedChat) -> StoredMessage:
    role = ASSISTANT if part.role == ASSISTANT else USER
    parent = number - 1 if number > 1 else None
    created = chat.updated or time()
    return StoredMessage(number, 0, parent, role, part.text, (), "", "", WHOLE, {}, created)


def copy_chat(library: Library, history: History, chat: ImportedChat) -> Chat:
    """Copy an imported chat into the history, to be continued there; returns the copy.

    Raises:
        InputError: it is no longer imported.
        StoreError: a store cannot be read or written.
    """
    messages = read_messages(library, chat)
    last = messages[-1].id
    copy = Chat(0, chat.title, False, False, "", {}, last, chat.updated or time(), time())
    return restore_chat(history, copy, messages)


class ImportedChatSearch:
    """Searches titles and messages of imported chats, by the words of the passages.

    For one thread at a time.
    """

    def __init__(self, locations: Locations) -> None:
        self._library = Library.open(locations.library)
        self._passages: PassageStore = open_passages(locations)
        self._version: int | None = None
        self._chats: Mapping[bytes, ImportedChat] = {}

    def close(self) -> None:
        with closing(self._library):
            self._passages.close()

    def find(self, typed: str) -> list[ImportedHit]:
        """The hits that have every typed word, the last one at least as a prefix: titles first.

        Raises:
            StoreError: a store cannot be read.
        """
        words = fold(typed.replace("\0", " ")).lower().split()
        if not words:
            return []
        if (version := self._library.version()) != self._version:
            self._chats = {chat.key: chat for chat in imported_chats(self._library)}
            self._version = version
        return [*self._titles(words), *self._messages(typed, words)][:MAX_HITS]

    def _titles(self, words: Sequence[str]) -> list[ImportedHit]:
        found = (
            hit for one in self._chats.values() for hit in _hit(one, None, "", one.title, words)
        )
        return [hit for hit, _ in zip(found, range(MAX_TITLE_HITS), strict=False)]

    def _messages(self, typed: str, words: Sequence[str]) -> Iterator[ImportedHit]:
        retriever, seen = Bm25Retriever(self._passages), set[tuple[bytes, int]]()
        sought = split_words(typed)
        for scored in retriever.search_words(sought, MAX_CANDIDATES, self._chats.keys()):
            passage = scored.passage
            if (passage.text, passage.part) in seen:
                continue
            seen.add((passage.text, passage.part))
            chat, parts = self._chats[passage.text], self._library.read(passage.text)
            for number in exchange(parts, passage.part):
                yield from _hit(chat, number, parts[number].role, parts[number].text, words)


def _hit(
    chat: ImportedChat, message: int | None, role: str, text: str, words: Sequence[str]
) -> Iterator[ImportedHit]:
    """The hit, if `text` has all `words`."""
    folded = fold(text).lower()
    if all(word in folded for word in words):
        spans = spans_of(text, ("|".join(map(re.escape, words)),))
        yield ImportedHit(chat, message, role, excerpt(text, spans))
