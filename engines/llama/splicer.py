"""Joins literals, contents and stored ids into one prompt of token ids.

Text between two control tokens is tokenised as one run, whether it is the template's or a person's:
that is how the model has seen it in training, and merges across the seam come out right. Control
tokens are looked for in literals alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

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


class Splicer:
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
