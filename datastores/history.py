"""The history: every chat as a tree of messages. SQLite is its only truth.

Owns the life of chats and messages. Refuses to know models (tokens and fingerprints are opaque)
and screens. Nothing a person or a model wrote is overwritten: an edited message and a second answer
are new siblings, and a chat remembers at which leaf it is being read. Only an answer that is still
being written grows in place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datastores.database import Store
from datastores.erasure import erase_wanted, want_erasure
from datastores.history_reader import HistoryReader, no_chat, no_message
from datastores.migrations import HISTORY, WORD_INDEXES
from datastores.processes import lives, this_process
from datastores.records import INTERRUPTED, STREAMING, WHOLE, Chat, Message
from datastores.tokens import pack
from datastores.tree import IN_VIEW


class History(HistoryReader):
    """All chats in one file. Several processes and threads may use it at once.

    Every method raises StoreError where the file cannot be read or written, and InputError for an
    id that does not exist (any more).
    """

    @classmethod
    def open(cls, path: Path) -> History:
        """Open or create the history and mark the answers that died with their process.

        `store.set_aside` tells where a damaged predecessor was moved to.
        """
        history = cls(Store(path, HISTORY))
        history.mark_interrupted()
        return history

    def beside(self) -> History:
        """The same history over a connection of its own, for another thread."""
        return History(Store(self.store.path, HISTORY))

    def create_chat(
        self,
        title: str = "",
        *,
        private: bool = False,
        system: str = "",
        sampling: Mapping[str, object] | None = None,
    ) -> Chat:
        """A new, empty chat."""
        now = time.time()
        record = {
            "title": storable(title),
            "private": int(private),
            "system": storable(system),
            "sampling": json.dumps(dict(sampling or {})),
            "created": now,
            "updated": now,
        }
        with self.store.writing() as db:
            chat = _inserted(db.table("chats").insert(record).last_pk)
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

    def set_active(self, chat: int, message: int) -> None:
        """Read the chat up to `message`; `leaf_below` finds where another version ends."""
        if self.message(message).chat != chat:
            raise no_message(message)
        self._set(chat, active=message)

    def switch(self, message: int) -> None:
        """Read the chat of `message` in this version, up to the newest message below it."""
        self._set(self.message(message).chat, active=self.leaf_below(message))

    def bring_in_view(self, message: int) -> None:
        """Read the chat of `message` so that it is on the thread; does nothing where it is."""
        chat = self.message(message).chat
        if not self.store.rows(IN_VIEW, {"chat": chat, "message": message}):
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
    ) -> Message:
        """Append a message under `parent` (None: at the root) and make it the active leaf.

        `finish=STREAMING` begins an answer that `extend_message` goes on writing.
        """
        now = time.time()
        record = {
            "chat": chat,
            "parent": parent,
            "role": role,
            "model": model,
            "tokenizer": tokenizer,
            "created": now,
            **_answer(content, tokens, finish, statistics or {}),
        }
        with self.store.writing() as db:
            self.chat(chat)
            if parent is not None:
                self.message(parent)
            message = _inserted(db.table("messages").insert(record).last_pk)
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
        """Replace what has been written so far of an unfinished answer by something longer."""
        with self.store.writing() as db:
            changed = _answer(content, tokens, finish, statistics)
            assignments = ", ".join(f"{column} = :{column}" for column in changed)
            cursor = db.conn.execute(
                f"UPDATE messages SET {assignments} WHERE id = :id", {**changed, "id": message}
            )
            if not cursor.rowcount:
                raise no_message(message)

    def delete_chat(self, chat: int) -> None:
        """Delete a chat with all versions of its messages. `erase` must follow."""
        with self.store.writing() as db:
            if not db.conn.execute("DELETE FROM chats WHERE id = ?", (chat,)).rowcount:
                raise no_chat(chat)
            want_erasure(db)

    def erase(self) -> bool:
        """Leave no byte of what was deleted, if anything was; tells whether there was work.

        Takes about a second for each 60 MB, in which nothing can be written: not for a screen's
        thread.

        Raises:
            StoreError: another process keeps an older state; the wish stays noted.
        """
        return erase_wanted(self.store, WORD_INDEXES)

    def mark_interrupted(self) -> int:
        """Finish the answers whose process is gone; returns how many there were."""
        unfinished = self.store.rows("SELECT id, writer FROM messages WHERE finish = ''")
        dead = [(INTERRUPTED, row["id"]) for row in unfinished if not lives(row["writer"])]
        if dead:
            with self.store.writing() as db:
                # Another process may have finished one in between.
                sql = "UPDATE messages SET finish = ?, writer = '' WHERE id = ? AND finish = ''"
                db.conn.executemany(sql, dead)
        return len(dead)

    def _set(self, chat: int, **columns: object) -> None:
        with self.store.writing() as db:
            self.chat(chat)
            db.table("chats").update(chat, columns)


def storable(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 file can hold, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _answer(
    content: str, tokens: Sequence[int], finish: str, statistics: Mapping[str, object]
) -> dict[str, Any]:
    """The columns of a message that change while it is being written."""
    return {
        "content": storable(content),
        "tokens": pack(tokens),
        "finish": finish,
        "statistics": json.dumps(dict(statistics)),
        "writer": this_process() if finish == STREAMING else "",
    }


def _inserted(key: Any) -> int:
    return int(key)
