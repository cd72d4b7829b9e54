"""A conversation as a template frames it: its own literal text, and places for the contents.

Contents do not go through the template. Each stands in it as a sentinel, and the rendered text is
cut at the sentinels: what a person typed is then told apart from the template's own control tokens,
and an answer's stored token ids can take its place. Refuses to know tokens.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engines.chat import Message

PAD = "\x1f"
"""Around each sentinel: whitespace to Python, so a template that trims contents takes it away."""


class Renderer(Protocol):
    """What turns messages into text; `engines.llama.jinja.JinjaTemplate`."""

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
