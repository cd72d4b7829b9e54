"""Putting whole chats back into a history: with their trees, their times and where they were read.

The ids they come with only say how their messages hang together; they get new ones. Refuses to know
files and formats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from datastores.chats.history import History, HistoryReader, storable
from datastores.chats.records import Chat, StoredMessage
from datastores.tokens import pack


def restore_chat(history: History, chat: Chat, messages: Sequence[StoredMessage]) -> Chat:
    """Insert `chat` with `messages`, all or nothing; returns it as it now stands.

    Args:
        chat: `active` is None or the id of one of `messages`.
        messages: a tree, parents before children, in the order in which they were begun.

    Raises:
        StoreError: the history does not take it.
    """
    places: dict[int | None, int | None] = {None: None}
    with history.store.writing() as db:
        own = _columns(asdict(chat), title=storable(chat.title), system=storable(chat.system))
        number = int(db.table("chats").insert({**own, "active": None}).last_pk or 0)
        for message in messages:
            row = _columns(asdict(message), content=storable(message.content))
            row.update(chat=number, parent=places[message.parent], tokens=pack(message.tokens))
            places[message.id] = int(db.table("messages").insert(row).last_pk or 0)
        db.table("chats").update(number, {"active": places[chat.active]})
    return history.chat(number)


def contains_chat(history: HistoryReader, chat: Chat, messages: Sequence[StoredMessage]) -> bool:
    """Whether the history has this chat already, with each of its messages."""
    rows = history.store.rows("SELECT id FROM chats WHERE created = ?", (chat.created,))
    wanted = {_said(message) for message in messages}
    return any(wanted <= {_said(kept) for kept in history.tree(row["id"])} for row in rows)


def _columns(values: dict[str, object], **changed: object) -> dict[str, object]:
    """A row: without its old id, JSON as text."""
    values = {**values, **changed}
    del values["id"]
    return {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in values.items()
    }


def _said(message: StoredMessage) -> tuple[str, str, float]:
    return message.role, message.content, message.created
