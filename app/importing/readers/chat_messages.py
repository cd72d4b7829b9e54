"""A message in an exported chat: its author and its texts, whichever program exported it.

All programs export an object with a speaker and a content. They differ in its keys, in the blocks
of the content, and in what accompanies it: attached files, and documents and programs that the
model wrote with a tool. What the person did not see (reasoning, other tool calls, system prompts)
is left out.
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
"""Lowercase name in exports → role."""

_FRAGMENTS = {"REQUEST": USER, "RESPONSE": ASSISTANT}
"""Type of a fragment of DeepSeek's messages → role."""

_UNSEEN_ROLES = frozenset({"system", "developer", "tool", "function", "ipython", "environment"})

_ROLE_KEYS = ("role", "from", "sender", "author", "speaker", "type")
_FLAGS = ("isCreatedByUser", "is_user", "isUser", "fromUser", "from_user", "is_human")
"""Keys of booleans that tell whether the person wrote it."""

_TEXT_KEYS = (
    "content", "contentParts", "parts", "text", "value", "mes", "message", "steps", "contentChunks",
    "data", "fragments",
)  # fmt: skip
_WRAPPERS = ("message", "response", "payload", "data")
"""Keys whose value may be the message itself."""

_PAIRS = (
    ("prompt", "response"), ("message", "response"), ("query", "answer"), ("query_str", "answer"),
)  # fmt: skip
"""Keys of a question and its answer in one object."""

_TEXT_TYPES = frozenset(
    {"", "text", "input_text", "output_text", "contentblock", "markdown", "main_text"}
    | {"audio_transcription"}
)
"""Lowercase types of the blocks that hold a message's text."""

_SHOWN_CONTENT = (None, "text", "multimodal_text")
"""ChatGPT's types of content that the person sees."""

_HIDDEN = "is_visually_hidden_from_conversation"
_CITATIONS = re.compile("\ue200[^\ue200\ue201]*\ue201|【[^【】†]*†[^【】]*】")
"""Source marks that ChatGPT shows as links: `\ue200cite…\ue201` and `【12†source】`."""

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
"""Reasoning at the beginning of a text, as models write it."""
_FOLD, _FOLD_END = '<details type="reasoning"', "</details>"
"""Open WebUI's fold around reasoning anywhere in a text."""
_SPACE = re.compile(r"\s*")

_CANVAS = "canmore."
"""Prefix of the recipient where ChatGPT writes into a canvas."""

_FILE_KEYS = ("attachments", "extra", "files", "canvas")
_FILE_TEXT_KEYS = ("extracted_content", "content", "text", "file_text", "new_str", "code")
_FILE_NAME_KEYS = ("file_name", "filename", "name", "path", "title")


_MARKS = frozenset((*_ROLE_KEYS, *_FLAGS, *_WRAPPERS, *(key for pair in _PAIRS for key in pair)))
_MARKS |= {"versions", "fragments"}
"""An object without any of these keys is not a message."""


def is_message(value: object) -> bool:
    """Whether `value` is some program's object for a message, or for a question and its answer."""
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
    """The texts of a `value` for which `is_message` is true."""
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
    """`text` without reasoning, in linear time; an unclosed fold stays."""
    kept, at = list[str](), 0
    if thought := _THOUGHT.match(text):
        at = _skip_space(text, thought.end())
    while (start := text.find(_FOLD, at)) >= 0 and (end := text.find(_FOLD_END, start)) >= 0:
        kept.append(text[at:start])
        at = _skip_space(text, end + len(_FOLD_END))
    return "".join((*kept, text[at:]))


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def text_of(value: object) -> str:
    """The text of a content: a string, an object that contains it, or an array of text blocks."""
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
    """The message in an element of a chat: its selected version, its wrapped value, or itself."""
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
    """The author in lower case, as the program names it; empty if unknown."""
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
    """Whether the person did not see it: a tool call, reasoning, or a retracted message."""
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
    """The message's text; if there are blocks, `text` is an older rendering that includes tools."""
    blocks = sequence(message.get("content"))
    kinds = {string(mapping(block).get("type")).lower() for block in blocks if block}
    others = kinds - _TEXT_TYPES
    for key in _TEXT_KEYS:
        text = text_of(message.get(key))
        if text.strip() or (key == "content" and others):
            return text
    return ""


def _canvas(message: Mapping[str, Any]) -> Iterator[Part]:
    """What was written into a canvas: a document, or replacements of its parts."""
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
    """What the model wrote with a tool that creates or edits a document."""
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
