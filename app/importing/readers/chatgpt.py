"""ChatGPT's export: `conversations.json`, its numbered shards, or the ZIP around them.

Each conversation is a tree of nodes; what the person last saw is the path from `current_node` up to
the root. Tools, hidden messages and thoughts are on it too, and are left out.
"""

from __future__ import annotations

import re
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
from datastores.errors import InputError

_SHOWN = ("text", "multimodal_text")
_HIDDEN = "is_visually_hidden_from_conversation"
_CITATIONS = re.compile("\ue200[^\ue201]*\ue201|【[^】]*†[^】]*】")
"""Marks of sources, which the site shows as links: `\ue200cite…\ue201` and `【12†source】`."""


def _convert(record: Mapping[str, Any]) -> Conversation:
    nodes = mapping(record.get("mapping"))
    messages = (mapping(node.get("message")) for node in _path(nodes, record.get("current_node")))
    turns = [_turn(message) for message in messages if _visible(message)]
    return Conversation(string(record.get("title")), turns)


def _path(nodes: Mapping[str, Any], current: object) -> list[Mapping[str, Any]]:
    """The nodes from the root to `current`, or to the last leaf where an export names none."""
    leaves = [name for name, node in nodes.items() if not mapping(node).get("children")]
    key = string(current) or next(reversed(leaves), "")
    path: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while key in nodes:
        if key in seen:
            raise InputError("its messages form a loop")
        seen.add(key)
        path.append(mapping(nodes[key]))
        key = string(path[-1].get("parent"))
    return path[::-1]


def _visible(message: Mapping[str, Any]) -> bool:
    """Whether the person saw this message as words of theirs or of the model."""
    return (
        _role(message) in ROLES
        and mapping(message.get("content")).get("content_type") in _SHOWN
        and not mapping(message.get("metadata")).get(_HIDDEN)
        and message.get("recipient") in (None, "all")
        and message.get("channel") in (None, "final")
        and message.get("weight") != 0
    )


def _role(message: Mapping[str, Any]) -> str:
    return string(mapping(message.get("author")).get("role"))


def _turn(message: Mapping[str, Any]) -> Turn:
    text = "\n\n".join(_parts(mapping(message.get("content"))))
    return Turn(ROLES[_role(message)], _CITATIONS.sub("", text))


def _parts(content: Mapping[str, Any]) -> Iterator[str]:
    """Strings, and the words of what was spoken; not pictures."""
    for part in sequence(content.get("parts")):
        text = string(part) or string(mapping(part).get("text"))
        if text:
            yield text


READER = chat_reader("ChatGPT export", "mapping", _convert)
