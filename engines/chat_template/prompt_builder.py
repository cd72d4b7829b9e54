"""Joins the segments of a conversation into the token ids of a prompt.

Segments are literals (the template's own text), contents of messages and stored token ids;
`placement` splits what a template renders into them. Text between two control tokens is tokenized
as one run, the template's along with the person's: so the model saw it in training, and merges
across the boundary come out right. Control tokens are recognised only in literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
"""Roles of messages."""
ANCHOR = "\n"
"""Precedes a continuation while it is tokenized, so that it is no beginning of a text."""
STRIPS_BEFORE, STRIPS_AFTER = 1 << 7, 1 << 8
"""llama.cpp's LLAMA_TOKEN_ATTR_LSTRIP and _RSTRIP: the control token strips whitespace."""
NO_MATCH = r"(?!)"


Tool = Mapping[str, Any]
"""A tool that the model may call, as OpenAI's API describes it: {"type": "function", …}."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, with `arguments` by name."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        tokens: the ids that the model generated, as in the KV cache; empty if unknown or another
            tokenizer's. If given, `content` is never tokenized again.
        calls: an answer's calls of tools, which are not in `content`.
        written: such an answer as the model wrote it, calls included; empty if unknown. `tokens`
            are then its ids.
        call_id: of a tool's result, the id of the call.
    """

    role: str
    content: str
    tokens: tuple[int, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    written: str = ""
    call_id: str = ""

    @property
    def as_written(self) -> Message:
        """An answer with its calls as text, as far as that is known."""
        return Message(self.role, self.written, self.tokens) if self.written else self

    @property
    def as_called(self) -> Message:
        """An answer with its calls as data."""
        return replace(self, tokens=(), written="") if self.calls else self

    @property
    def as_text(self) -> Message:
        """The message for a template that knows no tools: calls are text, and a tool's result is
        the user's."""
        if self.role == TOOL:
            return Message(USER, self.content)
        if not self.calls or self.written:
            return self.as_written
        calls = [json.dumps({"name": one.name, "arguments": one.arguments}) for one in self.calls]
        return Message(self.role, "\n".join(filter(None, (self.content, *calls))))


@dataclass(frozen=True, slots=True)
class Literal:
    """The template's own text, in which control tokens are recognised."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """The content of message `index`, whose ends the template may have trimmed."""

    index: int
    text: str
    tokens: tuple[int, ...]


Segment = Literal | Content


def restore_generation_prompts(segments: Sequence[Segment]) -> list[Segment]:
    """Put the generation prompt before earlier answers too, if it and their opening begin alike.

    Templates end a prompt with more (`<think>`) or less (a space) than they put before a finished
    answer. In the KV cache, stored ids follow the generation prompt.
    """
    prompt = segments[-1]
    assert isinstance(prompt, Literal)
    restored = list(segments)
    for place, segment in enumerate(segments):
        if isinstance(segment, Content) and segment.tokens and place > 1:
            opening = segments[place - 1]
            assert isinstance(opening, Literal)
            if _begin_alike(opening.text, prompt.text):
                restored[place - 1] = replace(opening, text=prompt.text)
    return restored


def _begin_alike(one: str, other: str) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


class Tokenizer(Protocol):
    """What prompts need of a vocabulary; see `LlamaVocabulary`."""

    @property
    def control_tokens(self) -> Mapping[str, int]: ...

    @property
    def stops(self) -> Collection[int]: ...

    @property
    def prompt_prefix(self) -> Sequence[int]: ...

    @property
    def bos(self) -> int: ...

    @property
    def eos(self) -> int: ...

    def text(self, token: int) -> str: ...

    def attributes(self, token: int) -> int: ...

    def encode(self, text: str) -> list[int]: ...


def control_pattern(tokenizer: Tokenizer) -> re.Pattern[str]:
    """Matches the text of any control token, the longest first."""
    texts = sorted(tokenizer.control_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) or NO_MATCH)


def encode_continuation(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of `text` as a continuation, without the space that SentencePiece vocabularies put
    before a first word."""
    anchor = tokenizer.encode(ANCHOR)
    ids = tokenizer.encode(ANCHOR + text)
    return ids[len(anchor) :] if ids[: len(anchor)] == anchor else tokenizer.encode(text)


class PromptBuilder:
    """Builds one prompt, from left to right.

    Args:
        controls: the tokenizer's `control_pattern`.
    """

    def __init__(self, tokenizer: Tokenizer, controls: re.Pattern[str]) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._ids: list[int] = []
        self._run: list[str] = []
        self._follows_text = False
        self._strips_next = False

    def literal(self, text: str) -> None:
        """Add text in which control tokens are recognised."""
        start = 0
        for found in self._controls.finditer(text):
            self.content(text[start : found.start()])
            self._control(self._tokenizer.control_tokens[found[0]])
            start = found.end()
        self.content(text[start:])

    def content(self, text: str) -> None:
        """Add text in which nothing is a control token."""
        if self._strips_next and text:
            text = text.lstrip()
            self._strips_next = False
        self._run.append(text)

    def stored(self, tokens: Sequence[int], following: str) -> None:
        """Add an answer's ids; `following` is the literal after it.

        A final stop token is left out if the literal begins with one.
        """
        self._flush()
        stops = self._tokenizer.stops
        end = self._controls.match(following.lstrip())
        if tokens[-1] in stops and end and self._tokenizer.control_tokens[end[0]] in stops:
            tokens = tokens[:-1]
        self._ids.extend(tokens)
        self._follows_text = True

    def finish(self) -> list[int]:
        """The prompt, with the tokenizer's prefix unless the template wrote it."""
        self._flush()
        prefix = list(self._tokenizer.prompt_prefix)
        return self._ids if self._ids[: len(prefix)] == prefix else prefix + self._ids

    def _control(self, token: int) -> None:
        attributes = self._tokenizer.attributes(token)
        if attributes & STRIPS_BEFORE:
            self._run = ["".join(self._run).rstrip()]
        self._flush()
        self._ids.append(token)
        self._follows_text = False
        self._strips_next = bool(attributes & STRIPS_AFTER)

    def _flush(self) -> None:
        text = "".join(self._run)
        self._run = []
        if not text:
            return
        if self._follows_text:
            self._ids.extend(encode_continuation(self._tokenizer, text))
        else:
            self._ids.extend(self._tokenizer.encode(text))
        self._follows_text = True
