"""An embedding model: unit vectors of texts and of their tokens, with the prefixes that some models
expect.

llama.cpp is asked for the states of all tokens, and they are pooled here, since it outputs either
the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from datastores.passages.embeddings import Encoding
from engines.fingerprint import fingerprint
from engines.llama.batch import split_into_passes
from engines.llama.context import Weights
from engines.llama.probe import EMBEDDING
from engines.llama.text_model import MAX_TEXTS, TextModel, pooling_type
from engines.target import Floats

PASS_TOKENS = 256
"""Tokens of a pass, unless one text has more. More make it no faster (texts of 120 tokens in BF16:
156 µs of CPU a token in passes of 240, 159 in those of 480), and take memory."""
PREFIXES = (
    ("nomic", "search_query: ", "search_document: "),
    ("e5", "query: ", "passage: "),
    ("embeddinggemma", "task: search result | query: ", "title: none | text: "),
    ("mxbai", "Represent this sentence for searching relevant passages: ", ""),
    ("bge", "Represent this sentence for searching relevant passages: ", ""),
    ("arctic-embed", "Represent this sentence for searching relevant passages: ", ""),
    (
        "qwen3-embedding",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query"
        "\nQuery: ",
        "",
    ),
)
"""(part of the model's name, query prefix, passage prefix), from the model cards."""


class EmbeddingModel:
    """A loaded embedding model. Thread-safe; the calls take turns.

    Attributes:
        fingerprint: identity of the weights; vectors of different ones are not comparable.
        width: length of a vector.
        max_tokens: tokens of the longest text that is embedded as a whole.
        parallel: number of passes that run at once.
    """

    def __init__(
        self,
        path: Path,
        *,
        probe_cache: Path | None = None,
        threads: int = 0,
        pausable: bool = False,
        many: bool = False,
    ) -> None:
        """The arguments are those of `TextModel`.

        Raises:
            ModelError: missing, damaged or hostile, not an embedding model, or out of memory.
        """
        self.path = path
        self._model = TextModel(
            path,
            partial(_StateReader, path),
            kind=EMBEDDING,
            probe_cache=probe_cache,
            threads=threads,
            pausable=pausable,
            many=many,
        )
        self.fingerprint = fingerprint(path)
        self.width, self.max_tokens = self._model.weights.width, self._model.max_tokens
        self.parallel = self._model.parallel
        self._vocabulary = self._model.vocabulary
        name = f"{self._model.weights.metadata('general.name')} {path.stem}".lower().replace(
            " ", "-"
        )
        found = (prefixes for part, *prefixes in PREFIXES if part in name)
        self._query_prefix, self._passage_prefix = next(found, ("", ""))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Unit vectors, float32 [texts, width], of texts without a prefix; of a long one, its
        beginning.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        vectors = [one.vector for one in self._encode([self._tokenize(text) for text in texts])]
        return np.array(vectors, np.float32).reshape(len(texts), self.width)

    def count(self, text: str) -> int:
        """Number of tokens of `text`, those that begin and end it included."""
        return len(self._vocabulary.encode(text, ends=True))

    def encode_queries(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings of queries.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        tokens = [self._tokenize(self._query_prefix + text) for text in texts]
        return [
            replace(one, pieces=tuple(map(self._vocabulary.text, own)))
            for one, own in zip(self._encode(tokens), tokens, strict=True)
        ]

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings of passages; of a long one, of its beginning.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        return self._encode([self._tokenize(self._passage_prefix + text) for text in texts])

    def _encode(self, tokens: Sequence[list[int]]) -> list[Encoding]:
        passes = list(split_into_passes(tokens, MAX_TEXTS, PASS_TOKENS))
        return list(chain.from_iterable(self._model.run(passes)))

    def _tokenize(self, text: str) -> list[int]:
        """Token ids, with those that begin and end a text; a long text keeps its last one."""
        tokens = self._vocabulary.encode(text, ends=True)
        longest = self.max_tokens
        return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


class _StateReader:
    """Reads the states of all tokens.

    Raises:
        ModelError: the model ranks texts.
    """

    pooling = lib.LLAMA_POOLING_TYPE_NONE

    def __init__(self, path: Path, weights: Weights) -> None:
        self._path = path
        self._width = weights.width
        self._pool = _pool(weights, path)

    def __call__(self, context: Any, lengths: Sequence[int]) -> list[Encoding]:
        rows = (sum(lengths), self._width)
        states = np.ctypeslib.as_array(lib.llama_get_embeddings(context), rows).copy()
        return [self._encoding(own) for own in np.split(states, np.cumsum(lengths)[:-1])]

    def _encoding(self, states: Floats) -> Encoding:
        vector = self._pool(states)
        lengths = np.linalg.norm([vector, *states], axis=1)
        if not (lengths > 0).all() or not np.isfinite(lengths).all():
            raise ModelError(f"{self._path} gives no vector for a text: choose another model")
        return Encoding(vector / lengths[0], states / lengths[1:, None])


def _pool(weights: Weights, path: Path) -> Callable[[Floats], Floats]:
    """How the states [tokens, width] of a text become its vector [width].

    Raises:
        ModelError: the model ranks texts.
    """
    kind = pooling_type(weights)
    if kind == lib.LLAMA_POOLING_TYPE_RANK:
        raise ModelError(f"{path} ranks texts instead of embedding them: choose another model")
    if kind == lib.LLAMA_POOLING_TYPE_CLS:
        return lambda states: states[0]
    if kind == lib.LLAMA_POOLING_TYPE_LAST:
        return lambda states: states[-1]
    return lambda states: states.mean(axis=0)
