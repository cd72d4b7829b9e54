"""ShareGPT: `{"conversations": [{"from": "human", "value": "…"}, …]}`, alone or in arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.importing.readers.conversation import (
    ROLES,
    Conversation,
    Turn,
    chat_reader,
    mapping,
    sequence,
    string,
)


def _convert(record: Mapping[str, Any]) -> Conversation:
    return Conversation(string(record.get("id")), tuple(_turns(record)))


def _turns(record: Mapping[str, Any]) -> Iterator[Turn]:
    for message in map(mapping, sequence(record.get("conversations"))):
        role = ROLES.get(string(message.get("from")).lower())
        if role:
            yield Turn(role, string(message.get("value")))


READER = chat_reader("ShareGPT", "conversations", _convert)
