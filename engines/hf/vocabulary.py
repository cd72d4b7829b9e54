"""The tokenizer of a safetensors folder as a `Vocabulary`: text to token ids and back.

Owns what chat templates and the loop ask of a vocabulary, over a tokenizer of transformers. Refuses
to know templates and chats. GGUF files have their own (`engines.llama.vocabulary`).
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from datastores.errors import InputError, ModelError

NOTHING = r"(?!)"
ANCHOR = "\n"
"""Put before text that continues other text, to take the place of the text's beginning."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""How SentencePiece writes a byte that no piece covers."""
STRIPS_BEFORE, STRIPS_AFTER = 1 << 7, 1 << 8
"""As llama.cpp's attributes say that a control token eats whitespace."""


class HfVocabulary:
    """Implements `engines.target.Vocabulary`, and what a `ChatTemplate` needs besides.

    Args:
        tokenizer: a fast tokenizer of transformers.
        ends: token ids that the model's generation settings call ends of an answer.
    """

    def __init__(self, tokenizer: Any, ends: frozenset[int]) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"{tokenizer.name_or_path}: its tokenizer has no fast form; use a GGUF of the model"
            )
        self._tokenizer = tokenizer
        self._backend = backend
        self._ends = ends
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(backend.to_str())["decoder"])
        self._bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self._tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits over every token's text, in order, and the merging rules."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()[:32]

    @cached_property
    def stops(self) -> frozenset[int]:
        """The model's ends of an answer, and the tokenizer's."""
        return self._ends | ({self.eos} if self.eos >= 0 else frozenset())

    @cached_property
    def controls(self) -> dict[str, int]:
        """Text → id of every token that text is parsed for only on request."""
        added = self._tokenizer.added_tokens_decoder.items()
        return {token.content: number for number, token in added if token.special}

    @cached_property
    def control_pattern(self) -> re.Pattern[str]:
        """Matches what is written like one of `controls`; the longer first."""
        texts = sorted(self.controls, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or NOTHING)

    @cached_property
    def leading(self) -> tuple[int, ...]:
        """What stands before every prompt: BOS, where the tokenizer puts it there."""
        ids = self._backend.encode("", add_special_tokens=True).ids
        return (self.bos,) if ids[:1] == [self.bos] else ()

    @property
    def bos(self) -> int:
        """The token that begins a text; -1 where there is none."""
        return _number(self._tokenizer.bos_token_id)

    @property
    def eos(self) -> int:
        """The token that ends a text; -1 where there is none."""
        return _number(self._tokenizer.eos_token_id)

    def text(self, token: int) -> str:
        """How a token is written in a template; empty for no token (-1)."""
        return "" if token < 0 else str(self._tokenizer.convert_ids_to_tokens(token) or "")

    def attributes(self, token: int) -> int:
        """Which whitespace a control token eats, as llama.cpp's bits."""
        added = self._tokenizer.added_tokens_decoder.get(token)
        if added is None:
            return 0
        return STRIPS_BEFORE * bool(added.lstrip) | STRIPS_AFTER * bool(added.rstrip)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`, without BOS. With `special`, control tokens written out are parsed.

        Lone surrogates, which UTF-8 cannot carry, become question marks.
        """
        self._backend.encode_special_tokens = not special
        clean = text.encode("utf-8", "replace").decode()
        ids: list[int] = self._backend.encode(clean, add_special_tokens=False).ids
        return ids

    def encode_on(self, text: str) -> list[int]:
        """Token ids of `text` as it continues other text: without the space that SentencePiece
        vocabularies put before the first word."""
        anchor = self.encode(ANCHOR)
        ids = self.encode(ANCHOR + text)
        return ids[len(anchor) :] if ids[: len(anchor)] == anchor else self.encode(text)

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens. May be a part of a character."""
        if not 0 <= token < self.size:
            raise InputError(f"token {token} is not in this vocabulary of {self.size}")
        text = self.text(token)
        if text in self.controls:
            return b""
        if self._byte_level:
            return bytes(self._bytes[letter] for letter in text if letter in self._bytes)
        byte = BYTE.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _number(token: int | None) -> int:
    return -1 if token is None else int(token)
