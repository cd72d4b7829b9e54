"""`{"messages": [{"role", "content"}, …]}`, in an array or one a line: what most tools write."""

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


def _convert(record: Mapping[str, Any]) -> Conversation:
    title = string(record.get("title")) or string(record.get("id"))
    return Conversation(title, tuple(_turns(record)))


def _turns(record: Mapping[str, Any]) -> Iterator[Turn]:
    for message in map(mapping, sequence(record.get("messages"))):
        role = ROLES.get(string(message.get("role")).lower())
        if role:
            yield Turn(role, content_text(message.get("content")))


READER = chat_reader("messages", "messages", _convert)
