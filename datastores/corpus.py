"""The texts that drafters may learn from: the library's, and those of chats that are not private.

Answers that were stopped because they repeated themselves are excluded, and secrets in chats are
redacted. Every store made from texts (CREST, dense index, passages) is a projection of this: it
stores the keys of its texts, and asks for the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datastores.chats.history import History
from datastores.chats.records import LOOPED, PROGRAMS, STREAMING
from datastores.library.documents import CHATS
from datastores.library.library import Library
from datastores.redaction import redact
from datastores.tokens import unpack

_MESSAGE_PREFIX = b"message "
"""Prefix of the key of a message. Its history's name and its number follow, since the numbers of a
history that replaced a damaged one start again. A text's key is its digest."""

_FINISHED = f"""
    SELECT messages.id FROM messages JOIN chats ON chats.id = messages.chat
    WHERE NOT chats.private AND messages.role <> 'system'
    AND messages.finish NOT IN ('{STREAMING}', '{LOOPED}') AND messages.content <> ''
"""


@dataclass(frozen=True, slots=True)
class CorpusText:
    """A piece of text that is drafted from separately.

    Attributes:
        kind: chats, notes, code or shell, as in `datastores.library.documents`, or `PROGRAMS`.
        role: in chats, user or assistant; empty elsewhere.
        text: without secrets.
        tokens: the exact token ids of `text`; empty if they were not stored.
        tokenizer: fingerprint of the tokenizer that `tokens` belong to.
    """

    kind: str
    role: str
    text: str
    tokens: tuple[int, ...] = ()
    tokenizer: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The keys to add and to remove, in order."""

    added: tuple[bytes, ...]
    removed: tuple[bytes, ...]


class Corpus:
    """The texts of one library and one history. For one thread; others open their own."""

    def __init__(self, library: Library, history: History) -> None:
        self.library = library
        self._history = history
        self._prefix = _MESSAGE_PREFIX + history.name.encode() + b" "

    def difference(self, known: Iterable[bytes]) -> Difference:
        """The keys that a store with `known` must add and remove to hold exactly these texts."""
        present = {*self.library.digests(), *self._messages()}
        seen = frozenset(known)
        return Difference(tuple(sorted(present - seen)), tuple(sorted(seen - present)))

    def read(self, key: bytes) -> tuple[CorpusText, ...]:
        """The parts of the text under one key; none if it has been deleted."""
        if is_message(key):
            own = key.startswith(self._prefix)
            return self._message(int(key.removeprefix(self._prefix))) if own else ()
        parts = self.library.read(key)
        return tuple(CorpusText(part.kind, part.role, part.text) for part in parts)

    def library_version(self) -> tuple[int, int]:
        """A value that changes with every commit to the library, of this connection or another."""
        store = self.library.store
        foreign = store.rows("PRAGMA data_version")[0]["data_version"]
        return int(foreign), store.db.conn.total_changes

    def last_message(self) -> int:
        """Id of the newest message, finished or not; 0 if there is none."""
        return int(
            self._history.store.rows("SELECT coalesce(max(id), 0) AS n FROM messages")[0]["n"]
        )

    def messages_since(self, message: int) -> tuple[list[bytes], int]:
        """Keys of the finished messages after `message`, and the message to start from next time.

        That is the one before the oldest unfinished answer, so that none is missed; messages after
        it are returned again.
        """
        store = self._history.store
        rows = store.rows(f"{_FINISHED} AND messages.id > ? ORDER BY messages.id", (message,))
        unfinished = "SELECT min(id) AS first FROM messages WHERE id > ? AND finish = ''"
        first = store.rows(unfinished, (message,))[0]["first"]
        after = first - 1 if first is not None else max(message, self.last_message())
        return [self._key(row["id"]) for row in rows], after

    def _messages(self) -> list[bytes]:
        return [self._key(row["id"]) for row in self._history.store.rows(_FINISHED)]

    def _message(self, message: int) -> tuple[CorpusText, ...]:
        """One message; without its tokens if it has a secret, since they contain it."""
        columns = "origin, role, content, tokens, tokenizer"
        sql = f"SELECT {columns} FROM messages JOIN chats ON chats.id = messages.chat"
        condition = f"messages.id IN ({_FINISHED}) AND messages.id = ?"
        for row in self._history.store.rows(f"{sql} WHERE {condition}", (message,)):
            kind = PROGRAMS if row["origin"] == PROGRAMS else CHATS
            text, secrets = redact(row["content"])
            if secrets:
                return (CorpusText(kind, row["role"], text),)
            tokens = unpack(row["tokens"])
            return (CorpusText(kind, row["role"], text, tokens, row["tokenizer"]),)
        return ()

    def _key(self, message: int) -> bytes:
        return self._prefix + b"%d" % message


def is_message(key: bytes) -> bool:
    """Whether `key` belongs to a chat message rather than a library text."""
    return key.startswith(_MESSAGE_PREFIX)
