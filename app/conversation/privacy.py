"""Chats that stay apart while they are answered: nothing that drafts, indexes or learns sees them.

Private chats do, and those in which a secret stands (a key, a password): it belongs to the
transcript alone. What is on disk keeps them out through `datastores.corpus`; this does so for what
is alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.engine.engine import Engine
from app.engine.stores import file_under, make_drafters
from datastores.chats.records import Chat
from datastores.redaction import redact

CHAT_PREFIX = "chat:"
"""Begins the names of chats in stores that are not made from the corpus."""
TEXT_PREFIX = "text:"
"""Begins the names of imported texts there."""


class ChatIsolation:
    """Chooses the engine for a chat: the shared one, or for a chat apart one that forgets."""

    def __init__(self, engine: Engine, history: str) -> None:
        """For the chats of the history of that name."""
        self._engine = engine
        self._history = history
        self._chat: int | None = None
        self._apart = engine

    def engine(self, chat: Chat, texts: Iterable[str]) -> Engine:
        """The engine that answers in `chat`, whose messages so far are `texts`.

        For one that stays apart it has no observers, and drafters of its own, so that what those
        remember is drafted from in this chat alone and goes with it.
        """
        if not chat.private and not any(redact(text)[1] for text in texts):
            self._chat = None
            file_under(self._engine.drafters, chat_source(self._history, chat.id))
            return self._engine
        if chat.id != self._chat:
            names = [drafter.name for drafter in self._engine.drafters]
            drafters = make_drafters(names, self._engine.stores, remember=False)
            self._chat = chat.id
            self._apart = replace(self._engine, drafters=drafters, observers=[])
        return self._apart

    def answered(self, chat: int, engine: Engine, text: str) -> None:
        """`engine` has said `text` in `chat`: with a secret in it, its states are forgotten.

        Raises:
            StoreError: the dense index cannot be written.
        """
        dense = self._engine.stores.dense
        if engine is self._engine and dense is not None and redact(text)[1]:
            dense.ask(lambda book: book.forget(chat_source(self._history, chat)))


def chat_source(history: str, chat: int) -> str:
    """What a chat's words are filed under in stores that are not made from the corpus.

    With the history's name: after a damaged one was set aside, the next counts from 1 again.
    """
    return f"{CHAT_PREFIX}{history}:{chat}"


def text_source(key: bytes) -> str:
    """What an imported text, by its key in the corpus, is filed under there."""
    return f"{TEXT_PREFIX}{key.hex()}"
