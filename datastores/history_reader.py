"""The history as it is read: chats, and the trees of messages they are.

Owns how rows become records. Refuses to change anything: `datastores.history` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datastores.database import Store
from datastores.errors import InputError
from datastores.records import (
    CHAT_COLUMNS,
    MESSAGE_COLUMNS,
    Chat,
    Message,
    chat_of,
    message_of,
)
from datastores.tree import CHILDREN, LEAF, PATH, SIBLINGS, versions


class HistoryReader:
    """All chats in one file, to be read. Several processes and threads may do so at once.

    Every method raises StoreError where the file cannot be read, and InputError for an id that does
    not exist (any more).

    Attributes:
        name: twelve letters and digits that no other history has.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = str(store.rows("SELECT name FROM history")[0]["name"])

    def close(self) -> None:
        self.store.close()

    def chats(self) -> list[Chat]:
        """All chats: pinned ones first, then the one last written in first."""
        order = "ORDER BY pinned DESC, updated DESC, id DESC"
        return [
            chat_of(row) for row in self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats {order}")
        ]

    def chat(self, chat: int) -> Chat:
        """One chat by its id."""
        rows = self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?", (chat,))
        if not rows:
            raise no_chat(chat)
        return chat_of(rows[0])

    def last_chat(self) -> Chat:
        """The chat last written in, pinned or not."""
        order = "ORDER BY updated DESC, id DESC LIMIT 1"
        rows = self.store.rows(f"SELECT {CHAT_COLUMNS} FROM chats {order}")
        if not rows:
            raise InputError("there is no chat to continue yet: ask without -c first")
        return chat_of(rows[0])

    def message(self, message: int) -> Message:
        """One message by its id."""
        rows = self._messages("SELECT * FROM messages WHERE id = ?", (message,))
        if not rows:
            raise no_message(message)
        return rows[0]

    def thread(self, chat: int) -> list[Message]:
        """The path from the root to the active leaf, oldest first; empty in an empty chat."""
        active = self.chat(chat).active
        return [] if active is None else self.path(active)

    def path(self, message: int) -> list[Message]:
        """The path from the root to `message`, oldest first."""
        return self._messages(PATH, (message,))

    def siblings(self, message: int) -> list[Message]:
        """All versions at this place, this one included, oldest first."""
        return self._messages(SIBLINGS, (message,))

    def versions(self, chat: int) -> dict[int, tuple[int, ...]]:
        """For each message of a chat that has siblings: all versions at its place, oldest first.

        A message's number in `‹ 2/3 ›` is its index in them, plus one.
        """
        return versions(self.store.rows(CHILDREN, (chat,)))

    def leaf_below(self, message: int) -> int:
        """The newest message, at the end of a branch, of the tree under `message`."""
        rows = self.store.rows(LEAF, {"message": message})
        if rows[0]["leaf"] is None:
            raise no_message(message)
        return int(rows[0]["leaf"])

    def tree(self, chat: int) -> list[Message]:
        """Every message of a chat, all versions, in the order in which they were begun."""
        self.chat(chat)
        return self._messages("SELECT * FROM messages WHERE chat = ? ORDER BY id", (chat,))

    def _messages(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object]
    ) -> list[Message]:
        chosen = f"SELECT {MESSAGE_COLUMNS} FROM ({sql})"
        return [message_of(row) for row in self.store.rows(chosen, parameters)]


def no_chat(chat: int) -> InputError:
    """What is raised where a chat is asked for that is not there."""
    return InputError(f"there is no chat {chat}: it may have been deleted in another window")


def no_message(message: int) -> InputError:
    """What is raised where a message is asked for that is not there."""
    return InputError(f"there is no message {message}: its chat may have been deleted")
