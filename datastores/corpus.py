"""What drafters may learn from: the library's texts and the chats that are not private, as one.

Owns which texts these are, and that no secret said in a chat leaves its transcript. Every store
made from texts (CREST, dense index, documents) is a projection of this: whoever keeps one notes the
keys of what is in it, and asks for the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from datastores.chats.history import History
from datastores.library.documents import CHATS
from datastores.library.library import Library
from datastores.redaction import redact
from datastores.storage.sqlite import Store
from datastores.tokens import unpack

_MESSAGE = b"message "
"""Begins the key of a message, which goes on with its history's name and its number: the histories
before and after one that was set aside have the same numbers. A text's key is its digest."""

_SAID = """
    SELECT messages.id FROM messages JOIN chats ON chats.id = messages.chat
    WHERE NOT chats.private AND messages.role <> 'system' AND messages.finish <> ''
    AND messages.content <> ''
"""


@dataclass(frozen=True, slots=True)
class CorpusText:
    """A stretch of text that nothing runs into.

    Attributes:
        kind: chats, notes, code or shell, as in `datastores.library.documents`.
        role: in chats, user or assistant; empty elsewhere.
        text: without secrets.
        tokens: the exact token ids of `text`, where they were kept; else empty.
        tokenizer: fingerprint of the tokenizer that `tokens` belong to.
    """

    kind: str
    role: str
    text: str
    tokens: tuple[int, ...] = ()
    tokenizer: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """What someone has to add and to remove, by key, in the order of keys."""

    added: tuple[bytes, ...]
    removed: tuple[bytes, ...]


class Corpus:
    """The texts of one library and one history. For one thread; the next opens its own."""

    def __init__(self, library: Library, history: History) -> None:
        self._library = library
        self._history = history
        self._prefix = _MESSAGE + history.name.encode() + b" "

    @property
    def quarantined(self) -> Path | None:
        """Where a damaged library was moved to when it was opened for this."""
        return self._library.store.quarantined

    def difference(self, known: Iterable[bytes]) -> Difference:
        """What has to be done to what holds `known`, so that it holds all of this and no more."""
        present = {*self._library.digests(), *self._messages()}
        seen = frozenset(known)
        return Difference(tuple(sorted(present - seen)), tuple(sorted(seen - present)))

    def read(self, key: bytes) -> tuple[CorpusText, ...]:
        """The passages under one key; none if it went meanwhile."""
        if is_message(key):
            own = key.startswith(self._prefix)
            return self._message(int(key.removeprefix(self._prefix))) if own else ()
        parts = self._library.read(key)
        return tuple(CorpusText(part.kind, part.role, part.text) for part in parts)

    def library_version(self) -> tuple[int, int]:
        """Differs from an earlier answer of this object if the library changed in between."""
        return _version(self._library.store)

    def last_message(self) -> int:
        """Number of the newest message, finished or not; 0 where there is none."""
        return int(
            self._history.store.rows("SELECT coalesce(max(id), 0) AS n FROM messages")[0]["n"]
        )

    def messages_since(self, message: int) -> tuple[list[bytes], int]:
        """Keys of what was said after `message`, and the message to ask from the next time.

        That is the one before the oldest answer still being written, so none is missed; what came
        after it will be told again.
        """
        store = self._history.store
        rows = store.rows(f"{_SAID} AND messages.id > ? ORDER BY messages.id", (message,))
        unfinished = "SELECT min(id) AS first FROM messages WHERE id > ? AND finish = ''"
        first = store.rows(unfinished, (message,))[0]["first"]
        after = first - 1 if first is not None else max(message, self.last_message())
        return [self._key(row["id"]) for row in rows], after

    def _messages(self) -> list[bytes]:
        return [self._key(row["id"]) for row in self._history.store.rows(_SAID)]

    def _message(self, message: int) -> tuple[CorpusText, ...]:
        """One message. With a secret in it its tokens are of no use: they spell it."""
        sql = f"SELECT role, content, tokens, tokenizer FROM messages WHERE id IN ({_SAID})"
        for row in self._history.store.rows(f"{sql} AND id = ?", (message,)):
            text, secrets = redact(row["content"])
            if secrets:
                return (CorpusText(CHATS, row["role"], text),)
            tokens = unpack(row["tokens"])
            return (CorpusText(CHATS, row["role"], text, tokens, row["tokenizer"]),)
        return ()

    def _key(self, message: int) -> bytes:
        return self._prefix + b"%d" % message


def is_message(key: bytes) -> bool:
    """Whether the text under `key` is a message of a chat, not a text of the library."""
    return key.startswith(_MESSAGE)


def _version(store: Store) -> tuple[int, int]:
    """Changes with every commit: of other connections, and of this one."""
    foreign = store.rows("PRAGMA data_version")[0]["data_version"]
    return int(foreign), store.db.conn.total_changes
