"""Joins literals, contents and stored ids into one prompt of token ids.

Text between two control tokens is tokenised as one run, whether it is the template's or a person's:
that is how the model has seen it in training, and merges across the seam come out right. Control
tokens are looked for in literals alone.

A conversation as a template frames it: its own literal text, and places for the contents.

Contents do not go through the template. Each stands in it as a sentinel, and the rendered text is
cut at the sentinels: what a person typed is then told apart from the template's own control tokens,
and an answer's stored token ids can take its place. Refuses to know tokens.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engines.chat_message import Message

PAD = "\x1f"
"""Around each sentinel: whitespace to Python, so a template that trims contents takes it away."""


class Renderer(Protocol):
    """What turns messages into text; `engines.chat_template.sandbox.JinjaTemplate`."""

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The conversation as text."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    """Text of the template's own: control tokens in it are meant."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """The place of message `index`'s content, whose ends the template may have trimmed."""

    index: int
    text: str
    tokens: tuple[int, ...]


Segment = Literal | Content


class Framer:
    """Cuts conversations, with sentinels nobody else can write."""

    def __init__(self, template: Renderer) -> None:
        self._template = template
        self._nonce = secrets.token_hex(8)
        self._pattern = re.compile(f"({PAD}?)s{self._nonce}x(\\d+)x({PAD}?)")

    def frame(self, messages: Sequence[Message]) -> list[Segment] | None:
        """Literals and contents by turns, literals first and last.

        None if the template does not carry every content through once and in order: it quotes,
        repeats, reorders or rewrites them.

        Raises:
            ModelError: the template refuses the conversation.
        """
        stand_ins = [self._stand_in(message, index) for index, message in enumerate(messages)]
        text = self._template.render(stand_ins, add_generation_prompt=True)
        found = list(self._pattern.finditer(text))
        if [int(match[2]) for match in found] != list(range(len(messages))):
            return None
        segments: list[Segment] = []
        end = 0
        for match, message in zip(found, messages, strict=True):
            segments.append(Literal(text[end : match.start()]))
            segments.append(_content(message, match))
            end = match.end()
        segments.append(Literal(text[end:]))
        return segments if not self._damaged(segments) else None

    def _stand_in(self, message: Message, index: int) -> dict[str, str]:
        return {"role": message.role, "content": f"{PAD}s{self._nonce}x{index}x{PAD}"}

    def _damaged(self, segments: Sequence[Segment]) -> bool:
        """Whether a piece of a sentinel is left in a literal, in whatever spelling."""
        return any(
            isinstance(segment, Literal) and self._nonce in segment.text.lower()
            for segment in segments
        )


def _content(message: Message, match: re.Match[str]) -> Content:
    text = message.content if match[1] else message.content.lstrip()
    return Content(int(match[2]), text if match[3] else text.rstrip(), message.tokens)


def reopen_answers(segments: Sequence[Segment]) -> list[Segment]:
    """Open earlier answers as the one to come is opened, where both openings begin alike.

    Templates end a prompt with more (`<think>`) or less (a space) than they put before an answer
    that is over. The stored ids were written after the prompt's ending, which stands in the cache.
    """
    opening = segments[-1]
    assert isinstance(opening, Literal)
    reopened = list(segments)
    for place, segment in enumerate(segments):
        if isinstance(segment, Content) and segment.tokens and place > 1:
            before = segments[place - 1]
            assert isinstance(before, Literal)
            if _begin_alike(before.text, opening.text):
                reopened[place - 1] = replace(before, text=opening.text)
    return reopened


def _begin_alike(one: str, other: str) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


STRIPS_BEFORE, STRIPS_AFTER = 1 << 7, 1 << 8
"""llama.cpp's LLAMA_TOKEN_ATTR_LSTRIP and _RSTRIP: a control token that eats whitespace."""


class Tokenizer(Protocol):
    """What prompts need of a vocabulary; see `engines.llama.vocabulary.LlamaVocabulary`."""

    @property
    def controls(self) -> Mapping[str, int]: ...

    @property
    def control_pattern(self) -> re.Pattern[str]: ...

    @property
    def stops(self) -> Collection[int]: ...

    @property
    def leading(self) -> Sequence[int]: ...

    @property
    def bos(self) -> int: ...

    @property
    def eos(self) -> int: ...

    def text(self, token: int) -> str: ...

    def attributes(self, token: int) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_on(self, text: str) -> list[int]: ...


class PromptBuilder:
    """Collects one prompt, left to right."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        self._vocabulary = vocabulary
        self._ids: list[int] = []
        self._run: list[str] = []
        self._follows_text = False
        self._strips_next = False

    def literal(self, text: str) -> None:
        """Add text in which control tokens are meant."""
        start = 0
        for found in self._vocabulary.control_pattern.finditer(text):
            self.content(text[start : found.start()])
            self._control(self._vocabulary.controls[found[0]])
            start = found.end()
        self.content(text[start:])

    def content(self, text: str) -> None:
        """Add text in which nothing is a control token."""
        if self._strips_next and text:
            text = text.lstrip()
            self._strips_next = False
        self._run.append(text)

    def stored(self, tokens: Sequence[int], following: str) -> None:
        """Add an answer as the model wrote it; `following` is the literal after it.

        The token that ended the answer is left to the literal if that ends it too.
        """
        self._flush()
        ended = tokens[-1] in self._vocabulary.stops
        ends = self._vocabulary.control_pattern.match(following.lstrip())
        if ended and ends and self._vocabulary.controls[ends[0]] in self._vocabulary.stops:
            tokens = tokens[:-1]
        self._ids.extend(tokens)
        self._follows_text = True

    def finish(self) -> list[int]:
        """The prompt, led by what the file wants before every prompt unless it stands there."""
        self._flush()
        leading = list(self._vocabulary.leading)
        if self._ids[: len(leading)] == leading:
            return self._ids
        return leading + self._ids

    def _control(self, token: int) -> None:
        attributes = self._vocabulary.attributes(token)
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
        encode = self._vocabulary.encode_on if self._follows_text else self._vocabulary.encode
        self._ids.extend(encode(text))
        self._follows_text = True
