"""Tells a model's reasoning (`<think>…</think>`) from its answer, whole or still growing.

Owns the two tags and nothing else. Some chat templates open the tag in the prompt, so that the
answer only closes it: what stands before a `</think>` on a line of its own was reasoning all
along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN = "<think>"
CLOSE = "</think>"
_LONE_CLOSE = re.compile(rf"^[ \t]*{CLOSE}[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parts:
    """`thinking`: the reasoning is still open."""

    thought: str
    answer: str
    thinking: bool


def split(raw: str, *, growing: bool) -> Parts:
    """The two parts of `raw`.

    While it is `growing`, the beginning of a tag at its end is held back, since the rest may come.
    """
    text = raw.lstrip()
    if text.startswith(OPEN):
        thought, closed, answer = text.removeprefix(OPEN).partition(CLOSE)
        if closed:
            return Parts(thought.strip(), answer.lstrip(), False)
        return Parts(_without_partial(thought, CLOSE, growing).strip(), "", growing)
    if lone := _LONE_CLOSE.search(raw):
        return Parts(raw[: lone.start()].strip(), raw[lone.end() :].lstrip(), False)
    return Parts("", _without_partial(text, OPEN, growing and len(text) < len(OPEN)), False)


def _without_partial(text: str, tag: str, growing: bool) -> str:
    """`text` without the beginning of `tag` at its end."""
    if not growing:
        return text
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text
