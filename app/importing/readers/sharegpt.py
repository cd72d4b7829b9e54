"""ShareGPT: `{"conversations": [{"from": "human", "value": "…"}, …]}`, alone or in arrays.

Some tools write its messages with `role` and `content` instead.
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


def _convert(record: Mapping[str, Any]) -> Conversation:
    return Conversation(string(record.get("id")), tuple(_turns(record)))


def _turns(record: Mapping[str, Any]) -> Iterator[Turn]:
    for message in map(mapping, sequence(record.get("conversations"))):
        speaker = string(message.get("from")) or string(message.get("role"))
        role = ROLES.get(speaker.lower())
        if role:
            yield Turn(role, string(message.get("value")) or content_text(message.get("content")))


READER = chat_reader("ShareGPT", "conversations", _convert)
