"""A GGUF's tokenizer as a `Vocabulary`: text to token ids and back.

Owns tokenising. Refuses to know templates and chats.

The tokenizer of a GGUF file alone: what background work needs, without the weights.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as lib

from datastores.errors import InputError, ModelError
from engines.llama import native
from engines.llama.gguf import check_header


class _Tokenizer:
    """An open file of which only the vocabulary was read."""

    def __init__(self, path: Path) -> None:
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = True
        native.forget_errors()
        self.handle: Any = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.handle:
            raise ModelError(
                f"the tokenizer of {path} cannot be loaded"
                f" ({native.first_error() or 'llama.cpp gives no reason'}): choose another file"
            )
        weakref.finalize(self, lib.llama_model_free, self.handle).atexit = False
        self.vocabulary: Any = lib.llama_model_get_vocab(self.handle)
        if lib.llama_vocab_type(self.vocabulary) == lib.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"{path} holds no tokenizer: choose another file")


def load_vocabulary(path: Path) -> LlamaVocabulary:
    """The vocabulary in a GGUF file; takes a tenth of a second to a second.

    Raises:
        ModelError: missing, damaged, or without a tokenizer.
    """
    check_header(path)
    opened = _Tokenizer(path)
    return LlamaVocabulary(opened.vocabulary, opened)


NOTHING = r"(?!)"
ANCHOR = "\n"
"""Put before text that continues other text, to take the place of the text's beginning."""


class LlamaVocabulary:
    """Implements `engines.target.Vocabulary`. `owner` is kept so that the model outlives it."""

    def __init__(self, vocabulary: Any, owner: object) -> None:
        self._vocabulary = vocabulary
        self._owner = owner
        self._size: int = lib.llama_vocab_n_tokens(vocabulary)
        self._pieces: dict[int, bytes] = {}
        self._buffer = ctypes.create_string_buffer(256)

    @property
    def size(self) -> int:
        """Number of token ids."""
        return self._size

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits over every token's text and attributes, in order."""
        digest = hashlib.sha256()
        for token in range(self._size):
            digest.update(native.token_text(self._vocabulary, token))
            attributes: int = native.token_attributes(self._vocabulary, token)
            digest.update(b"\0%d\0" % attributes)
        return digest.hexdigest()[:32]

    @cached_property
    def stops(self) -> frozenset[int]:
        """Every token the file marks as the end of a generation (EOS, EOT, EOM, …)."""
        return frozenset(
            token for token in range(self._size) if native.token_is_end(self._vocabulary, token)
        )

    @cached_property
    def controls(self) -> dict[str, int]:
        """Text → id of every token that text is parsed for only on request."""
        wanted = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        found = (token for token in range(self._size) if self.attributes(token) & wanted)
        return {text: token for token in found if (text := self.text(token))}

    @cached_property
    def control_pattern(self) -> re.Pattern[str]:
        """Matches what is written like one of `controls`; the longer first."""
        texts = sorted(self.controls, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or NOTHING)

    @property
    def leading(self) -> tuple[int, ...]:
        """What stands before every prompt: BOS, where the file asks for it, else nothing."""
        if not lib.llama_vocab_get_add_bos(self._vocabulary) or self.bos < 0:
            return ()
        return (self.bos,)

    @property
    def bos(self) -> int:
        """The token that begins a text; -1 where there is none."""
        return int(lib.llama_vocab_bos(self._vocabulary))

    @property
    def eos(self) -> int:
        """The token that ends a text; -1 where there is none."""
        return int(lib.llama_vocab_eos(self._vocabulary))

    def text(self, token: int) -> str:
        """How a token is written in a template; empty for no token (-1)."""
        if token < 0:
            return ""
        raw: bytes = native.token_text(self._vocabulary, token)
        return raw.decode("utf-8", "replace")

    def attributes(self, token: int) -> int:
        """llama.cpp's attribute bits of a token (LLAMA_TOKEN_ATTR_…)."""
        return int(native.token_attributes(self._vocabulary, token))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`, without BOS. With `special`, control tokens written out are parsed.

        Lone surrogates, which UTF-8 cannot carry, become question marks.

        Raises:
            InputError: the tokenizer refuses the text.
        """
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = lib.llama_tokenize(self._vocabulary, raw, len(raw), ids, room, False, special)
            if count >= 0:
                return ids[:count]
            if -count <= room:
                raise InputError(f"the tokenizer refuses a text of {len(text)} characters")
            room = -count

    def encode_on(self, text: str) -> list[int]:
        """Token ids of `text` as it continues other text: without the space that SentencePiece
        vocabularies put before the first word."""
        anchor = self.encode(ANCHOR)
        ids = self.encode(ANCHOR + text)
        return ids[len(anchor) :] if ids[: len(anchor)] == anchor else self.encode(text)

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens. May be a part of a character."""
        known = self._pieces.get(token)
        if known is None:
            if not 0 <= token < self._size:
                raise InputError(f"token {token} is not in this vocabulary of {self._size}")
            known = self._pieces[token] = self._read_piece(token)
        return known

    def _read_piece(self, token: int) -> bytes:
        while True:
            room = len(self._buffer)
            count = native.token_to_piece(self._vocabulary, token, self._buffer, room, 0, False)
            if count >= 0:
                return self._buffer.raw[:count]
            self._buffer = ctypes.create_string_buffer(-count)
