"""The history: every chat as a tree of messages.

Nothing that a user or a model wrote is overwritten: an edited message or a second answer is a new
sibling, and a chat stores the active leaf, which defines the path that is shown. Only an answer
that is still being generated grows in place. Tokens and fingerprints are opaque here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from datastores.chats.figures import present_figures
from datastores.chats.records import (
    CHAT_COLUMNS,
    INTERRUPTED,
    MESSAGE_COLUMNS,
    PERSON,
    PROGRAMS,
    SCHEMA,
    STREAMING,
    WHOLE,
    WORD_INDEXES,
    Attached,
    Chat,
    StoredMessage,
    chat_from_row,
    message_from_row,
)
from datastores.errors import InputError
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.files import is_running, process_id
from datastores.storage.sqlite import Store
from datastores.tokens import pack

PATH = """
    WITH RECURSIVE path AS (
        SELECT id, parent, 0 AS depth FROM messages WHERE id = :message
        UNION ALL
        SELECT messages.id, messages.parent, depth + 1 FROM messages
        JOIN path ON messages.id = path.parent
    ), kept AS (SELECT id, depth FROM path ORDER BY depth DESC LIMIT -1 OFFSET :skipped)
    SELECT messages.* FROM kept JOIN messages ON messages.id = kept.id ORDER BY kept.depth DESC
"""
"""The path from the root to one message, oldest first, without the oldest ones."""

SIBLINGS = """
    SELECT other.* FROM messages AS this JOIN messages AS other
    ON other.chat = this.chat AND other.parent IS this.parent
    WHERE this.id = ? ORDER BY other.id
"""
"""One message and its siblings, oldest first."""

LEAF = """
    WITH RECURSIVE below AS (
        SELECT id, chat FROM messages WHERE id = :message
        UNION ALL
        SELECT messages.id, messages.chat FROM messages
        JOIN below ON messages.chat = below.chat AND messages.parent = below.id
    )
    SELECT max(id) AS leaf FROM below
"""
"""Id of the newest message at or below one message; null if there is no such message."""

IS_IN_VIEW = """
    WITH RECURSIVE path AS (
        SELECT messages.id, messages.parent FROM messages JOIN chats ON chats.active = messages.id
        WHERE chats.id = :chat
        UNION ALL
        SELECT messages.id, messages.parent FROM messages JOIN path ON messages.id = path.parent
    )
    SELECT 1 FROM path WHERE id = :message
"""
"""One row if a message is on the active path of its chat."""

_PROGRAM_TOTALS = """
    SELECT count(*) AS answers, coalesce(sum(length(content)), 0) AS characters,
        coalesce(sum(length(CAST(content AS BLOB)) + length(tokens)), 0) AS bytes
    FROM messages JOIN chats ON chats.id = messages.chat WHERE origin = :origin
"""
_PROGRAM_CHATS = """
    SELECT chats.id, coalesce(sum(length(CAST(content AS BLOB)) + length(tokens)), 0) AS bytes
    FROM chats LEFT JOIN messages ON messages.chat = chats.id WHERE origin = :origin
    GROUP BY chats.id ORDER BY updated DESC, chats.id DESC
"""
"""The chats of programs with their sizes, the newest first."""

CHILDREN = "SELECT parent, id FROM messages WHERE chat = ? ORDER BY parent, id"
"""Ids of a chat's messages and of their parents, siblings together, oldest first."""


def versions(rows: list[dict[str, int | None]]) -> dict[int, tuple[int, ...]]:
    """From rows of `CHILDREN`: each message that has siblings → all of them and itself."""
    found: dict[int, tuple[int, ...]] = {}
    for _, siblings in groupby(rows, key=itemgetter("parent")):
        ids = tuple(int(row["id"] or 0) for row in siblings)
        if len(ids) > 1:
            found.update(dict.fromkeys(ids, ids))
    return found


@dataclass(frozen=True, slots=True)
class ProgramTotals:
    """The stored answers to programs: their number, characters and bytes with their tokens."""

    answers: int
    characters: int
    bytes: int


class HistoryReader:
    """Read access to all chats in one file, by several processes and threads at once.

    Every method raises StoreError if the file cannot be read, and InputError for an id that does
    not exist (any more).

    Attributes:
        name: twelve random letters and digits that identify this history.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = str(store.rows("SELECT name FROM history")[0]["name"])

    def close(self) -> None:
        self.store.close()

    def data_version(self) -> int:
        """A number that changes whenever another connection has changed the file."""
        return int(self.store.rows("PRAGMA data_version")[0]["data_version"])

    def chats(self) -> list[Chat]:
        """The person's chats: pinned ones first, then by time of the last message, newest first."""
        return [chat for chat in self.all_chats() if chat.origin == PERSON]

    def all_chats(self) -> list[Chat]:
        """The person's chats and those of programs, in the same order."""
        order = "ORDER BY pinned DESC, updated DESC, id DESC"
        return [
            chat_from_row(row)
            for row in self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats {order}")
        ]

    def program_answers(self) -> ProgramTotals:
        """What is stored of answers to programs."""
        return ProgramTotals(**self.store.rows(_PROGRAM_TOTALS, {"origin": PROGRAMS})[0])

    def chat(self, chat: int) -> Chat:
        """One chat by its id."""
        rows = self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?", (chat,))
        if not rows:
            raise no_chat(chat)
        return chat_from_row(rows[0])

    def last_chat(self) -> Chat:
        """The person's chat with the newest message, pinned or not."""
        order = "WHERE origin = '' ORDER BY updated DESC, id DESC LIMIT 1"
        rows = self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats {order}")
        if not rows:
            raise InputError("no chat to continue: ask without -c")
        return chat_from_row(rows[0])

    def last_message(self) -> int:
        """The id of the newest message; 0 if there is none."""
        return int(self.store.rows("SELECT max(id) AS id FROM messages")[0]["id"] or 0)

    def message(self, message: int) -> StoredMessage:
        """One message by its id."""
        rows = self._messages("SELECT * FROM messages WHERE id = ?", (message,))
        if not rows:
            raise no_message(message)
        return rows[0]

    def thread(self, chat: int) -> list[StoredMessage]:
        """The path from the root to the active leaf, oldest first; empty in an empty chat."""
        active = self.chat(chat).active
        return [] if active is None else self.path(active)

    def path(self, message: int, skipped: int = 0) -> list[StoredMessage]:
        """The path from the root to `message`, oldest first, without the first `skipped` ones."""
        return self._messages(PATH, {"message": message, "skipped": skipped})

    def siblings(self, message: int) -> list[StoredMessage]:
        """The message and its siblings, oldest first."""
        return self._messages(SIBLINGS, (message,))

    def versions(self, chat: int) -> dict[int, tuple[int, ...]]:
        """Each message of a chat that has siblings → all of them and itself, oldest first.

        The place of a message among them is its number in `‹ 2/3 ›`.
        """
        return versions(self.store.rows(CHILDREN, (chat,)))

    def leaf_below(self, message: int) -> int:
        """The newest message, always a leaf, of the tree under `message`."""
        rows = self.store.rows(LEAF, {"message": message})
        if rows[0]["leaf"] is None:
            raise no_message(message)
        return int(rows[0]["leaf"])

    def tree(self, chat: int) -> list[StoredMessage]:
        """Every message of a chat, in the order of creation."""
        self.chat(chat)
        return self._messages("SELECT * FROM messages WHERE chat = ? ORDER BY id", (chat,))

    def _messages(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object]
    ) -> list[StoredMessage]:
        chosen = f"SELECT {MESSAGE_COLUMNS} FROM ({sql})"
        return [message_from_row(row) for row in self.store.rows(chosen, parameters)]


def no_chat(chat: int) -> InputError:
    """The error for a chat that does not exist (any more)."""
    return InputError(f"no chat {chat}: `specchat chats` lists them")


def no_message(message: int) -> InputError:
    """The error for a message that does not exist (any more)."""
    return InputError(f"no message {message}: its chat may have been deleted")


class History(HistoryReader):
    """All chats in one file. Several processes and threads may use it at once.

    Every method raises StoreError if the file cannot be read or written, and InputError for an
    id that does not exist (any more).
    """

    @classmethod
    def open(cls, path: Path) -> History:
        """Open or create the history, and mark answers whose process died as interrupted.

        `store.quarantined` is the path of a damaged predecessor, if there was one.
        """
        history = cls(Store(path, SCHEMA))
        history.mark_interrupted()
        return history

    def new_connection(self) -> History:
        """The same history over a connection for another thread; takes 0.4 ms."""
        return History(self.store.new_connection())

    def create_chat(
        self,
        title: str = "",
        *,
        private: bool = False,
        system: str = "",
        sampling: Mapping[str, object] | None = None,
        docs: str = "",
        origin: str = PERSON,
    ) -> Chat:
        """A new, empty chat."""
        now = time.time()
        record = {
            "title": storable(title),
            "private": int(private),
            "system": storable(system),
            "sampling": json.dumps(dict(sampling or {})),
            "docs": docs,
            "origin": origin,
            "created": now,
            "updated": now,
        }
        with self.store.writing() as db:
            chat = int(db.table("chats").insert(record).last_pk or 0)
        return self.chat(chat)

    def rename(self, chat: int, title: str) -> None:
        self._set(chat, title=storable(title))

    def pin(self, chat: int, pinned: bool) -> None:
        self._set(chat, pinned=int(pinned))

    def set_private(self, chat: int, private: bool) -> None:
        self._set(chat, private=int(private))

    def set_system(self, chat: int, system: str) -> None:
        self._set(chat, system=storable(system))

    def set_sampling(self, chat: int, sampling: Mapping[str, object]) -> None:
        self._set(chat, sampling=json.dumps(dict(sampling)))

    def set_docs(self, chat: int, docs: str) -> None:
        self._set(chat, docs=docs)

    def set_active(self, chat: int, message: int) -> None:
        """Make `message` the active leaf; `leaf_below` finds the leaf of another version."""
        if self.message(message).chat != chat:
            raise no_message(message)
        self._set(chat, active=message)

    def switch(self, message: int) -> None:
        """Make this version of `message` the active one, up to the newest message below it."""
        self._set(self.message(message).chat, active=self.leaf_below(message))

    def bring_into_view(self, message: int) -> None:
        """Make `message` part of its chat's active path; does nothing if it is."""
        chat = self.message(message).chat
        if not self.store.rows(IS_IN_VIEW, {"chat": chat, "message": message}):
            self.switch(message)

    def add_message(
        self,
        chat: int,
        parent: int | None,
        role: str,
        content: str,
        *,
        tokens: Sequence[int] = (),
        model: str = "",
        tokenizer: str = "",
        finish: str = WHOLE,
        statistics: Mapping[str, object] | None = None,
        attachments: Sequence[Attached] = (),
    ) -> StoredMessage:
        """Append a message under `parent` (None: at the root) and make it the active leaf.

        `finish=STREAMING` starts an answer that `extend_message` continues.
        """
        now = time.time()
        record = {
            "chat": chat,
            "parent": parent,
            "role": role,
            "model": model,
            "tokenizer": tokenizer,
            "created": now,
            "attachments": attachments_json(attachments),
            **_answer(content, tokens, finish, statistics or {}),
        }
        with self.store.writing() as db:
            self.chat(chat)
            if parent is not None:
                self.message(parent)
            message = int(db.table("messages").insert(record).last_pk or 0)
            db.table("chats").update(chat, {"active": message, "updated": now})
        return self.message(message)

    def extend_message(
        self,
        message: int,
        content: str,
        tokens: Sequence[int],
        statistics: Mapping[str, object],
        finish: str = STREAMING,
    ) -> None:
        """Replace the stored part of an unfinished answer with a longer one."""
        with self.store.writing() as db:
            changed = _answer(content, tokens, finish, statistics)
            assignments = ", ".join(f"{column} = :{column}" for column in changed)
            cursor = db.conn.execute(
                f"UPDATE messages SET {assignments} WHERE id = :id", {**changed, "id": message}
            )
            if not cursor.rowcount:
                raise no_message(message)

    def discard_answer(self, message: int, active: int | None) -> None:
        """Delete an answer without text; `active` becomes the active leaf."""
        answer = self.message(message)
        if answer.content:
            raise InputError(f"message {message} has text: it is kept")
        with self.store.writing() as db:
            db.table("chats").update(answer.chat, {"active": active})
            db.table("messages").delete(message)

    def delete_chat(self, chat: int) -> None:
        """Delete a chat with all its messages. `erase` must follow."""
        with self.store.writing() as db:
            if not db.conn.execute("DELETE FROM chats WHERE id = ?", (chat,)).rowcount:
                raise no_chat(chat)
            request_erasure(db)

    def delete_program_answers(self, keep_bytes: int = 0) -> list[int]:
        """Delete chats of programs, the oldest first, until those left have at most `keep_bytes`;
        returns their ids. `erase` must follow."""
        with self.store.writing() as db:
            found = self.store.rows(_PROGRAM_CHATS, {"origin": PROGRAMS})
            sizes = accumulate(row["bytes"] for row in found)
            gone = [
                row["id"]
                for row, n in zip(found, sizes, strict=True)
                if n > keep_bytes or not keep_bytes
            ]
            db.conn.executemany("DELETE FROM chats WHERE id = ?", [(chat,) for chat in gone])
            if gone:
                request_erasure(db)
        return gone

    def erase(self) -> bool:
        """Overwrite all deleted content, if there is any; returns whether there was.

        Takes seconds for each 100 MB, during which other connections can read, but wait to write
        (up to `BUSY_TIMEOUT_S`): not for the interface's thread.

        Raises:
            StoreError: another process keeps an older state; the request stays recorded.
        """
        return erase_requested(self.store, WORD_INDEXES)

    def mark_interrupted(self) -> int:
        """Mark answers whose process has ended as interrupted; returns their number."""
        unfinished = self.store.rows("SELECT id, writer FROM messages WHERE finish = ''")
        dead = [(INTERRUPTED, row["id"]) for row in unfinished if not is_running(row["writer"])]
        if dead:
            with self.store.writing() as db:
                # Another process may have finished one in the meantime.
                sql = "UPDATE messages SET finish = ?, writer = '' WHERE id = ? AND finish = ''"
                db.conn.executemany(sql, dead)
        return len(dead)

    def _set(self, chat: int, **columns: object) -> None:
        with self.store.writing() as db:
            self.chat(chat)
            db.table("chats").update(chat, columns)


def attachments_json(attachments: Sequence[Attached]) -> str:
    """The value of a message's `attachments` column."""
    return json.dumps([asdict(one) for one in attachments])


def storable(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _answer(
    content: str, tokens: Sequence[int], finish: str, statistics: Mapping[str, object]
) -> dict[str, Any]:
    """The columns of a message that change while it is being generated."""
    return {
        "content": storable(content),
        "tokens": pack(tokens),
        "finish": finish,
        "statistics": json.dumps(dict(statistics)),
        "writer": process_id() if finish == STREAMING else "",
    }


def restore_chat(history: History, chat: Chat, messages: Sequence[StoredMessage]) -> Chat:
    """Insert `chat` with `messages` in one transaction; returns the stored chat.

    Args:
        chat: its `active` is None or the id of one of `messages`.
        messages: a tree, parents before children, in the order of creation.

    Raises:
        StoreError: the file cannot be written.
    """
    new_ids: dict[int | None, int | None] = {None: None}
    with history.store.writing() as db:
        own = _columns(asdict(chat), title=storable(chat.title), system=storable(chat.system))
        number = int(db.table("chats").insert({**own, "active": None}).last_pk or 0)
        for message in messages:
            row = _columns(asdict(message), content=storable(message.content))
            row.update(chat=number, parent=new_ids[message.parent], tokens=pack(message.tokens))
            row.update(attachments=attachments_json(message.attachments))
            row.update(statistics=json.dumps(present_figures(message.statistics)))
            new_ids[message.id] = int(db.table("messages").insert(row).last_pk or 0)
        db.table("chats").update(number, {"active": new_ids[chat.active]})
    return history.chat(number)


def contains_chat(history: HistoryReader, chat: Chat, messages: Sequence[StoredMessage]) -> bool:
    """Whether the history already has this chat with all of its messages."""
    rows = history.store.rows("SELECT id FROM chats WHERE created = ?", (chat.created,))
    wanted = {_key(message) for message in messages}
    return any(wanted <= {_key(kept) for kept in history.tree(row["id"])} for row in rows)


def _columns(values: dict[str, object], **changed: object) -> dict[str, object]:
    """A row without its old id, and with mappings as JSON."""
    values = {**values, **changed}
    del values["id"]
    return {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in values.items()
    }


def _key(message: StoredMessage) -> tuple[str, str, float]:
    return message.role, message.content, message.created
