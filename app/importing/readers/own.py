"""specchat's own export: `{"specchat": 1, "chats": [{"title", "private", "messages"}, …]}`.

Messages are a list of `{"role", "content"}`, with whatever else the exporter needs. All versions of
a message are in it, and all are read: each is a text of its own, and what a person once regenerated
is still how their model writes. Private chats stay private.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.importing.readers.conversation import (
    ROLES,
    Conversation,
    Turn,
    chat_reader,
    content_text,
    mapping,
    sequence,
    string,
)
from datastores.errors import InputError


def _convert(record: Mapping[str, Any]) -> Conversation:
    if record.get("private"):
        raise InputError("a private chat")
    return Conversation(string(record.get("title")), tuple(_turns(record)))


def _turns(record: Mapping[str, Any]) -> Iterator[Turn]:
    for message in map(mapping, sequence(record.get("messages"))):
        role = ROLES.get(string(message.get("role")))
        if role:
            yield Turn(role, content_text(message.get("content")))


READER = chat_reader("specchat export", "specchat", _convert, prefix="chats.item")
