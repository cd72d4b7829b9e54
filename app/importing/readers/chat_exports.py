"""Exports of chats as JSON: ChatGPT, Claude, ShareGPT, messages, and specchat's own.

Owns what all of them share (`chat_reader`: records in, documents of messages out), then one section
for each. A new one is a function that converts a record to an `ExportedConversation`, a
`chat_reader` with the key that identifies the format, and a line in `make_readers`. A record may be
any JSON value, so formats read it through `mapping`, `sequence` and `string`, which return an empty
value for one of another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.importing.events import SkippedFile
from app.importing.json_stream import JsonRecord, json_shape, records
from app.importing.source_file import FormatReader, Outcome, SourceFile
from datastores.errors import InputError
from datastores.library.documents import CHATS, Document, Part

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
"""The role by its name in exports; system prompts and tools are left out."""

_TEXTS = ("text", "input_text", "output_text")
"""Types of a message's blocks that hold its text."""


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    """One message."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ExportedConversation:
    """One chat, which may be empty."""

    title: str
    messages: Sequence[ExportedMessage]


def chat_reader(
    name: str,
    key: str,
    convert: Callable[[Mapping[str, Any]], ExportedConversation],
    prefix: str | None = None,
) -> FormatReader:
    """A reader of JSON whose first object has `key`.

    `convert` may raise InputError to skip one record. `prefix` is as for `records`.
    """

    def claims(file: SourceFile) -> bool:
        return looks_like_json(file) and key in json_shape(file.head).keys

    def read(file: SourceFile) -> Iterator[Outcome]:
        for record in records(file, prefix):
            yield record if isinstance(record, SkippedFile) else _document(file, record, convert)

    return FormatReader(name, claims, read)


def looks_like_json(file: SourceFile) -> bool:
    """Whether it begins like an object or an array."""
    return file.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


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
    """The text of a message's content: a string, or the text blocks of an array."""
    if isinstance(content, str):
        return content
    blocks = (mapping(block) for block in sequence(content))
    texts = (string(block.get("text")) for block in blocks if block.get("type") in _TEXTS)
    return "\n\n".join(text for text in texts if text)


def _document(
    file: SourceFile,
    record: JsonRecord,
    convert: Callable[[Mapping[str, Any]], ExportedConversation],
) -> Outcome:
    name = f"{file.name}, chat {record.number}"
    try:
        conversation = convert(mapping(record.value))
    except InputError as error:
        return SkippedFile(name, str(error))
    parts = tuple(
        Part(CHATS, message.text, message.role) for message in conversation.messages if message.text
    )
    if not parts:
        return SkippedFile(name, "no messages in it")
    return Document(conversation.title or f"{file.stem} {record.number}", parts)


_SHOWN = ("text", "multimodal_text")
_HIDDEN = "is_visually_hidden_from_conversation"
_CITATIONS = re.compile("\ue200[^\ue201]*\ue201|【[^】]*†[^】]*】")
"""Marks of sources, which the site shows as links: `\ue200cite…\ue201` and `【12†source】`."""


# ChatGPT: `conversations.json`, its numbered shards, or the ZIP around them. Each conversation is a
# tree of nodes; what the person last saw is the path from `current_node` up to the root. Tools,
# hidden messages and reasoning are on it too, and are left out.
def _convert_chatgpt(record: Mapping[str, Any]) -> ExportedConversation:
    nodes = mapping(record.get("mapping"))
    path = (mapping(node.get("message")) for node in _path(nodes, record.get("current_node")))
    messages = [_chatgpt_message(message) for message in path if _is_visible(message)]
    return ExportedConversation(string(record.get("title")), messages)


def _path(nodes: Mapping[str, Any], current: object) -> list[Mapping[str, Any]]:
    """The nodes from the root to `current`, or to the last leaf if an export names none."""
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


def _is_visible(message: Mapping[str, Any]) -> bool:
    """Whether the person saw this message as their own text or the model's."""
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


def _chatgpt_message(message: Mapping[str, Any]) -> ExportedMessage:
    text = "\n\n".join(_parts(mapping(message.get("content"))))
    return ExportedMessage(ROLES[_role(message)], _CITATIONS.sub("", text))


def _parts(content: Mapping[str, Any]) -> Iterator[str]:
    """Strings, and transcripts of speech; not pictures."""
    for part in sequence(content.get("parts")):
        text = string(part) or string(mapping(part).get("text"))
        if text:
            yield text


CHATGPT = chat_reader("ChatGPT export", "mapping", _convert_chatgpt)


# Claude: an array of conversations, or one alone. `content` holds a message's blocks, `text` an
# older rendering of them in which tools and reasoning are mixed with the answer; so the blocks come
# first, unless they are nothing but empty texts.
def _convert_claude(record: Mapping[str, Any]) -> ExportedConversation:
    return ExportedConversation(string(record.get("name")), tuple(_claude_messages(record)))


def _claude_messages(record: Mapping[str, Any]) -> Iterator[ExportedMessage]:
    for message in map(mapping, sequence(record.get("chat_messages"))):
        role = ROLES.get(string(message.get("sender")))
        blocks = sequence(message.get("content"))
        others = any(mapping(block).get("type") != "text" for block in blocks)
        text = content_text(blocks) or ("" if others else string(message.get("text")))
        if role and text:
            yield ExportedMessage(role, text)


CLAUDE = chat_reader("Claude export", "chat_messages", _convert_claude)


# `{"messages": [{"role", "content"}, …]}`, in an array or one a line: what most tools write.
def _convert_messages(record: Mapping[str, Any]) -> ExportedConversation:
    title = string(record.get("title")) or string(record.get("id"))
    return ExportedConversation(title, tuple(_plain_messages(record)))


def _plain_messages(record: Mapping[str, Any]) -> Iterator[ExportedMessage]:
    for message in map(mapping, sequence(record.get("messages"))):
        role = ROLES.get(string(message.get("role")).lower())
        if role:
            yield ExportedMessage(role, content_text(message.get("content")))


MESSAGES = chat_reader("messages", "messages", _convert_messages)


# ShareGPT: `{"conversations": [{"from": "human", "value": "…"}, …]}`, alone or in arrays. Some
# tools write `role` and `content` instead.
def _convert_sharegpt(record: Mapping[str, Any]) -> ExportedConversation:
    return ExportedConversation(string(record.get("id")), tuple(_sharegpt_messages(record)))


def _sharegpt_messages(record: Mapping[str, Any]) -> Iterator[ExportedMessage]:
    for message in map(mapping, sequence(record.get("conversations"))):
        speaker = string(message.get("from")) or string(message.get("role"))
        role = ROLES.get(speaker.lower())
        if role:
            yield ExportedMessage(
                role, string(message.get("value")) or content_text(message.get("content"))
            )


SHAREGPT = chat_reader("ShareGPT", "conversations", _convert_sharegpt)


# specchat's own export: `{"specchat": 1, "chats": [{"title", "private", "messages"}, …]}`. Messages
# are a list of `{"role", "content"}`. All versions of a message are in it, and all are read: each
# is a text of its own, and an answer that was regenerated still shows how the model writes. Private
# chats stay private.
def _convert_own(record: Mapping[str, Any]) -> ExportedConversation:
    if record.get("private"):
        raise InputError("a private chat")
    return ExportedConversation(string(record.get("title")), tuple(_own_messages(record)))


def _own_messages(record: Mapping[str, Any]) -> Iterator[ExportedMessage]:
    for message in map(mapping, sequence(record.get("messages"))):
        role = ROLES.get(string(message.get("role")))
        if role:
            yield ExportedMessage(role, content_text(message.get("content")))


SPECCHAT = chat_reader("specchat export", "specchat", _convert_own, prefix="chats.item")
