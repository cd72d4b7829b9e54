"""A message in an exported chat: who wrote it, and its texts, whichever program exported it.

Programs agree on an object with a speaker and a content, and differ in its keys, in how a content
is made of blocks, and in what stands beside it: attached files, documents and programs that the
model wrote with a tool. Owns those differences. What the person did not see (reasoning, calls of
other tools, system prompts) is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.importing.json_stream import mapping, sequence, string
from app.importing.readers.text import kind_of
from datastores.library.documents import CHATS, CODE, NOTES, Part

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
    "gemini": ASSISTANT,
    "copilot": ASSISTANT,
    "grok": ASSISTANT,
}
"""The role by its name in exports, in small letters."""

_FRAGMENTS = {"REQUEST": USER, "RESPONSE": ASSISTANT}
"""The role by the type of a fragment, of which DeepSeek's messages are made."""

_UNSEEN_ROLES = frozenset({"system", "developer", "tool", "function", "ipython", "environment"})

_ROLE_KEYS = ("role", "from", "sender", "author", "speaker", "type")
_FLAGS = ("isCreatedByUser", "is_user", "isUser", "fromUser", "from_user", "is_human")
"""Keys that say whether the person wrote it."""

_TEXT_KEYS = (
    "content", "contentParts", "parts", "text", "value", "mes", "message", "steps", "contentChunks",
    "data", "fragments",
)  # fmt: skip
_WRAPPERS = ("message", "response", "payload", "data")
"""Keys of an object in an array of chats whose value may be the message itself."""

_PAIRS = (
    ("prompt", "response"),
    ("message", "response"),
    ("query", "answer"),
    ("query_str", "answer"),
)
"""Keys of a question and its answer in one object."""

_TEXT_TYPES = frozenset(
    {"", "text", "input_text", "output_text", "contentblock", "markdown", "main_text"}
    | {"audio_transcription"}
)
"""Types of a message's blocks that hold its text, in small letters."""

_SHOWN_CONTENT = (None, "text", "multimodal_text")
"""ChatGPT's types of a content that is part of the conversation."""

_HIDDEN = "is_visually_hidden_from_conversation"
_CITATIONS = re.compile("\ue200[^\ue200\ue201]*\ue201|【[^【】†]*†[^【】]*】")
"""Marks of sources, which ChatGPT shows as links: `\ue200cite…\ue201` and `【12†source】`."""

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
"""Reasoning at the beginning of a text, as models write it."""
_FOLD, _FOLD_END = '<details type="reasoning"', "</details>"
"""Around reasoning anywhere in a text, as Open WebUI folds it."""
_SPACE = re.compile(r"\s*")

_CANVAS = "canmore."
"""Begins the recipient of what ChatGPT writes into a canvas."""

_FILE_KEYS = ("attachments", "extra", "files", "canvas")
_FILE_TEXT_KEYS = ("extracted_content", "content", "text", "file_text", "new_str", "code")
_FILE_NAME_KEYS = ("file_name", "filename", "name", "path", "title")


_MARKS = frozenset((*_ROLE_KEYS, *_FLAGS, *_WRAPPERS, *(key for pair in _PAIRS for key in pair)))
_MARKS |= {"versions", "fragments"}
"""Keys without any of which an object is no message."""


def is_message(value: object) -> bool:
    """Whether `value` is an object that some program writes for a message, or for two."""
    record = mapping(value)
    if _MARKS.isdisjoint(record):
        return False
    message = _message(record)
    fragments = map(mapping, sequence(message.get("fragments")))
    if any(_is_pair(record, pair) for pair in _PAIRS) or any("type" in one for one in fragments):
        return True
    return _speaker(message) in ROLES.keys() | _UNSEEN_ROLES and any(
        key in message for key in _TEXT_KEYS
    )


def message_parts(value: object) -> Iterator[Part]:
    """The texts of what `is_message` calls a message."""
    record = mapping(value)
    for question, answer in _PAIRS:
        if _is_pair(record, (question, answer)):
            yield from _texts(USER, text_of(record[question]))
            yield from _texts(ASSISTANT, text_of(record[answer]))
            return
    message = _message(record)
    for fragment in map(mapping, sequence(message.get("fragments"))):
        role = _FRAGMENTS.get(string(fragment.get("type")), "")
        yield from _texts(role, string(fragment.get("content")))
    role = ASSISTANT if _is_report(message) else ROLES.get(_speaker(message), "")
    if role and not _is_hidden(message):
        yield from _canvas(message) if _is_canvas(message) else _said(role, message)


def _said(role: str, message: Mapping[str, Any]) -> Iterator[Part]:
    """The files with a message, its text, and what the model wrote with tools, in this order."""
    for key in _FILE_KEYS:
        for file in map(mapping, sequence(message.get(key))):
            yield from _file(file)
    yield from _texts(role, without_reasoning(_CITATIONS.sub("", _content(message))))
    for block in map(mapping, sequence(message.get("content"))):
        if block.get("type") == "tool_use":
            yield from _artifact(mapping(block.get("input")))


def without_reasoning(text: str) -> str:
    """`text` without the reasoning in it, found in one pass; what nothing closes is text."""
    kept, at = list[str](), 0
    if thought := _THOUGHT.match(text):
        at = _behind_space(text, thought.end())
    while (start := text.find(_FOLD, at)) >= 0 and (end := text.find(_FOLD_END, start)) >= 0:
        kept.append(text[at:start])
        at = _behind_space(text, end + len(_FOLD_END))
    return "".join((*kept, text[at:]))


def _behind_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def text_of(value: object) -> str:
    """The text of a content: a string, an object that holds it, or the text blocks of an array."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = (text_of(block) for block in value)
        return "\n\n".join(text for text in texts if text)
    if not isinstance(value, dict):
        return ""
    block = mapping(value)
    kind = block.get("type") or block.get("content_type") or ""
    if block.get("content_type") in _SHOWN_CONTENT and "parts" in block:
        kind = ""
    reasoning = block.get("thought") or mapping(block.get("style")).get("type") == "thinking"
    if reasoning or string(kind).lower() not in _TEXT_TYPES:
        return ""
    keys = ("text", "value", "content", "parts", "part")
    return next((text for key in keys if (text := text_of(block.get(key)))), "")


def _texts(role: str, text: str) -> Iterator[Part]:
    if role and text.strip():
        yield Part(CHATS, text, role)


def _is_pair(record: Mapping[str, Any], keys: tuple[str, str]) -> bool:
    question, answer = (record.get(key) for key in keys)
    return bool(text_of(question)) and isinstance(answer, str | list) and bool(text_of(answer))


def _message(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message in an element of a chat: a version of it, within a wrapper, or itself."""
    versions = sequence(record.get("versions"))
    if versions:
        number = record.get("currentlySelected")
        selected = number if isinstance(number, int) and 0 <= number < len(versions) else -1
        return mapping(versions[selected])
    for key in _WRAPPERS:
        inner = mapping(record.get(key))
        if _speaker(inner) or "fragments" in inner:
            return inner
    return record


def _speaker(message: Mapping[str, Any]) -> str:
    """Who wrote it, in small letters, as the program names them; empty if it does not say."""
    for flag in _FLAGS:
        if isinstance(message.get(flag), bool):
            return USER if message[flag] else ASSISTANT
    for key in _ROLE_KEYS:
        named = message.get(key)
        name = string(named) or string(mapping(named).get("role"))
        if name and (key != "type" or name.lower() in ROLES):
            return name.strip().lower()
    return ""


def _is_canvas(message: Mapping[str, Any]) -> bool:
    return string(message.get("recipient")).startswith(_CANVAS)


def _is_report(message: Mapping[str, Any]) -> bool:
    """Whether it is the result of ChatGPT's deep research, which a tool writes."""
    return mapping(message.get("metadata")).get("is_async_task_result_message") is True


def _is_hidden(message: Mapping[str, Any]) -> bool:
    """Whether the person did not see it: a call of a tool, reasoning, what was taken back."""
    if mapping(message.get("metadata")).get(_HIDDEN) or message.get("weight") == 0:
        return True
    if _is_canvas(message):
        return False
    content = mapping(message.get("content"))
    return (
        content.get("content_type") not in _SHOWN_CONTENT
        or message.get("recipient") not in (None, "all")
        or message.get("channel") not in (None, "final")
        or message.get("isThought") is True
    )


def _content(message: Mapping[str, Any]) -> str:
    """The message's text; beside blocks, `text` is an older rendering that mixes in the tools."""
    blocks = sequence(message.get("content"))
    kinds = {string(mapping(block).get("type")).lower() for block in blocks if block}
    others = kinds - _TEXT_TYPES
    for key in _TEXT_KEYS:
        text = text_of(message.get(key))
        if text.strip() or (key == "content" and others):
            return text
    return ""


def _canvas(message: Mapping[str, Any]) -> Iterator[Part]:
    """What was written into a canvas: a document, or what replaces a part of it."""
    written = mapping(message.get("content"))
    text = string(written.get("text")) or text_of(written.get("parts"))
    try:
        call = mapping(json.loads(text))
    except (ValueError, RecursionError):
        call = {"content": text}
    updates = (mapping(update).get("replacement") for update in sequence(call.get("updates")))
    for content in (call.get("content"), *updates):
        if string(content).strip():
            yield Part(CODE if "code" in string(call.get("type")) else NOTES, string(content))


def _artifact(call: Mapping[str, Any]) -> Iterator[Part]:
    """What the model wrote with a tool that makes or changes a document."""
    code = bool(call.get("language")) or "code" in call or "code" in string(call.get("type"))
    for part in _file(call):
        yield Part(CODE if code else part.kind, part.text)


def _file(file: Mapping[str, Any]) -> Iterator[Part]:
    inner = mapping(file.get("file"))
    name = next((string(file[key]) for key in _FILE_NAME_KEYS if string(file.get(key))), "")
    sources = (file, inner, mapping(inner.get("data")))
    for source in sources:
        for key in _FILE_TEXT_KEYS:
            if string(source.get(key)).strip():
                yield Part(kind_of(name.lower()), string(source[key]))
                return
