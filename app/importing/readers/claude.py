"""Claude's export: an array of conversations, or one alone.

`content` holds a message's blocks, `text` an older rendering of them in which tools and thoughts
are mixed with the answer; so the blocks come first, unless they are nothing but empty texts.
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
    return Conversation(string(record.get("name")), tuple(_turns(record)))


def _turns(record: Mapping[str, Any]) -> Iterator[Turn]:
    for message in map(mapping, sequence(record.get("chat_messages"))):
        role = ROLES.get(string(message.get("sender")))
        blocks = sequence(message.get("content"))
        others = any(mapping(block).get("type") != "text" for block in blocks)
        text = content_text(blocks) or ("" if others else string(message.get("text")))
        if role and text:
            yield Turn(role, text)


READER = chat_reader("Claude export", "chat_messages", _convert)
