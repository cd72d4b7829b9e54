"""What all exports of chats have in common: records in, documents of messages out.

A format only says by which key it is known and how one record becomes turns. Records are anything
JSON can say, so formats reach into them by `mapping`, `sequence` and `string`, which answer with
nothing where something else stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.importing.material import Flaw, Material, Outcome, Reader
from app.importing.records import Record, records, shape
from datastores.documents import CHATS, Document, Part
from datastores.errors import InputError

USER = "user"
ASSISTANT = "assistant"

ROLES = {
    "user": USER,
    "human": USER,
    "prompter": USER,
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "model": ASSISTANT,
    "bot": ASSISTANT,
    "ai": ASSISTANT,
    "bing": ASSISTANT,
    "bard": ASSISTANT,
    "claude": ASSISTANT,
}
"""Who speaks, by the names they have in exports; system prompts and tools are not here."""

_TEXTS = ("text", "input_text", "output_text")
"""Types of the blocks of a message that are its words."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat, before it is known whether anything is in it."""

    title: str
    turns: Sequence[Turn]


def chat_reader(
    name: str,
    key: str,
    convert: Callable[[Mapping[str, Any]], Conversation],
    prefix: str | None = None,
) -> Reader:
    """A reader of JSON whose first object has `key`.

    `convert` may raise InputError for one record, which costs only that one. `prefix` is as for
    `records`.
    """

    def claims(material: Material) -> bool:
        return looks_like_json(material) and key in shape(material.head).keys

    def read(material: Material) -> Iterator[Outcome]:
        for record in records(material, prefix):
            yield record if isinstance(record, Flaw) else _document(material, record, convert)

    return Reader(name, claims, read)


def looks_like_json(material: Material) -> bool:
    """Whether it begins as an object or an array does."""
    return material.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def mapping(value: object) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else ()


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def content_text(content: object) -> str:
    """The text of a message's content: a string, or an array of blocks of which text counts."""
    if isinstance(content, str):
        return content
    blocks = (mapping(block) for block in sequence(content))
    texts = (string(block.get("text")) for block in blocks if block.get("type") in _TEXTS)
    return "\n\n".join(text for text in texts if text)


def _document(
    material: Material,
    record: Record,
    convert: Callable[[Mapping[str, Any]], Conversation],
) -> Outcome:
    place = f"{material.name}, chat {record.number}"
    try:
        conversation = convert(mapping(record.value))
    except InputError as error:
        return Flaw(place, str(error))
    parts = tuple(Part(CHATS, turn.text, turn.role) for turn in conversation.turns if turn.text)
    if not parts:
        return Flaw(place, "no messages in it")
    return Document(conversation.title or f"{material.stem} {record.number}", parts)
