"""Restoring whole chats into a history: their trees, their times and their active leaves.

The ids they come with only say which message is whose parent; the history assigns new ones. Refuses
to know files and formats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from datastores.chats.history import History, HistoryReader, attachments_json, storable
from datastores.chats.records import Chat, StoredMessage
from datastores.tokens import pack


def restore_chat(history: History, chat: Chat, messages: Sequence[StoredMessage]) -> Chat:
    """Insert `chat` with `messages`, all or nothing; returns the stored chat.

    Args:
        chat: `active` is None or the id of one of `messages`.
        messages: a tree, parents before children, in the order of creation.

    Raises:
        StoreError: it cannot be written.
    """
    new_ids: dict[int | None, int | None] = {None: None}
    with history.store.writing() as db:
        own = _columns(asdict(chat), title=storable(chat.title), system=storable(chat.system))
        number = int(db.table("chats").insert({**own, "active": None}).last_pk or 0)
        for message in messages:
            row = _columns(asdict(message), content=storable(message.content))
            row.update(chat=number, parent=new_ids[message.parent], tokens=pack(message.tokens))
            row.update(attachments=attachments_json(message.attachments))
            new_ids[message.id] = int(db.table("messages").insert(row).last_pk or 0)
        db.table("chats").update(number, {"active": new_ids[chat.active]})
    return history.chat(number)


def contains_chat(history: HistoryReader, chat: Chat, messages: Sequence[StoredMessage]) -> bool:
    """Whether the history already has this chat with all of its messages."""
    rows = history.store.rows("SELECT id FROM chats WHERE created = ?", (chat.created,))
    wanted = {_key(message) for message in messages}
    return any(wanted <= {_key(kept) for kept in history.tree(row["id"])} for row in rows)


def _columns(values: dict[str, object], **changed: object) -> dict[str, object]:
    """A row without its old id, mappings as JSON."""
    values = {**values, **changed}
    del values["id"]
    return {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in values.items()
    }


def _key(message: StoredMessage) -> tuple[str, str, float]:
    return message.role, message.content, message.created
