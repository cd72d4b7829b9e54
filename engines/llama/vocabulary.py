"""A GGUF file's tokenizer as a `Vocabulary`: text to token ids and back."""

from __future__ import annotations

import ctypes
import hashlib
from functools import cached_property
from pathlib import Path

from llama_cpp import llama_cpp as lib

from datastores.errors import InputError
from engines.llama import native
from engines.llama.context import Weights
from engines.llama.gguf import check_header


def load_vocabulary(path: Path) -> LlamaVocabulary:
    """The vocabulary of a GGUF file without its weights; takes a tenth of a second to a second.

    Raises:
        ModelError: missing, damaged, or without a tokenizer.
    """
    check_header(path)
    return LlamaVocabulary(Weights(path, vocabulary_only=True))


class LlamaVocabulary:
    """Implements `engines.target.Vocabulary`, and what else a `ChatTemplate` needs."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights  # own the vocabulary
        self._vocabulary = weights.vocabulary
        self._size = weights.vocabulary_size
        self._pieces: dict[int, bytes] = {}
        self._buffer = ctypes.create_string_buffer(256)

    @property
    def size(self) -> int:
        """Number of token ids."""
        return self._size

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of a hash over all tokens' texts and attributes."""
        digest = hashlib.sha256()
        for token in range(self._size):
            digest.update(native.token_text(self._vocabulary, token))
            digest.update(b"\0%d\0" % self.attributes(token))
        return digest.hexdigest()[:32]

    @cached_property
    def stops(self) -> frozenset[int]:
        """Tokens that the file marks as the end of generation (EOS, EOT, EOM, …)."""
        return frozenset(
            token for token in range(self._size) if native.token_is_end(self._vocabulary, token)
        )

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        """Text → id of every token that `encode` produces only with `special`."""
        special = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        found = (token for token in range(self._size) if self.attributes(token) & special)
        return {text: token for token in found if (text := self.text(token))}

    @property
    def prompt_prefix(self) -> tuple[int, ...]:
        """The tokens that begin every prompt: BOS if the file asks for it."""
        if not lib.llama_vocab_get_add_bos(self._vocabulary) or self.bos < 0:
            return ()
        return (self.bos,)

    @property
    def bos(self) -> int:
        """The token that begins a text; -1 if there is none."""
        return int(lib.llama_vocab_bos(self._vocabulary))

    @property
    def eos(self) -> int:
        """The token that ends a text; -1 if there is none."""
        return int(lib.llama_vocab_eos(self._vocabulary))

    def text(self, token: int) -> str:
        """See `Vocabulary.text`; empty for no token (-1)."""
        if token < 0:
            return ""
        raw: bytes = native.token_text(self._vocabulary, token)
        return raw.decode("utf-8", "replace")

    def attributes(self, token: int) -> int:
        """llama.cpp's attribute bits of a token (LLAMA_TOKEN_ATTR_…)."""
        return int(native.token_attributes(self._vocabulary, token))

    def encode(self, text: str, *, special: bool = False, ends: bool = False) -> list[int]:
        """Token ids of `text`; lone surrogates become question marks.

        Args:
            special: parse control tokens in the text.
            ends: add the tokens that the file asks for around a text (BOS, EOS, CLS, SEP).

        Raises:
            InputError: the tokenizer rejects the text.
        """
        raw = text.encode("utf-8", "replace")
        capacity = len(raw) + 8
        while True:
            ids = (ctypes.c_int32 * capacity)()
            count = lib.llama_tokenize(
                self._vocabulary, raw, len(raw), ids, capacity, ends, special
            )
            if count >= 0:
                return ids[:count]
            if -count <= capacity:
                raise InputError(f"the tokenizer rejects a text of {len(text)} characters")
            capacity = -count

    def piece(self, token: int) -> bytes:
        """See `Vocabulary.piece`.

        Raises:
            InputError: no such token.
        """
        piece = self._pieces.get(token)
        if piece is None:
            if not 0 <= token < self._size:
                raise InputError(f"token {token} is not in this vocabulary of {self._size}")
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def _read_piece(self, token: int) -> bytes:
        while True:
            capacity = len(self._buffer)
            count = native.token_to_piece(self._vocabulary, token, self._buffer, capacity, 0, False)
            if count >= 0:
                return self._buffer.raw[:count]
            self._buffer = ctypes.create_string_buffer(-count)
