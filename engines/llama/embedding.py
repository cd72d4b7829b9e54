"""An embedding model: unit vectors of texts and of their tokens, with the prefixes that some models
expect.

llama.cpp is asked for the states of all tokens, and they are pooled here, since it outputs either
the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from datastores.passages.embeddings import Encoding
from datastores.pauses import pause_here
from engines.fingerprint import fingerprint
from engines.llama import native
from engines.llama.batch import MICRO_BATCH, Batch, evaluate, split_into_passes
from engines.llama.context import Weights, context_parameters, open_context
from engines.llama.gguf import check_header
from engines.llama.model import open_fitting
from engines.llama.probe import probe_once
from engines.llama.threads import default_threads
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Floats

MAX_TEXTS = 32
"""Maximum number of texts in one pass."""
MIN_SHARED = 2e9
"""Tokens times weights of a pass from which several threads share it: below, it takes some 10 ms of
one, and on a busy machine the others arrive late. A question of 12 tokens took 4 ms of CPU with one
thread of two and 15 ms with both (all-MiniLM-L6-v2); beside load 5 and up to 1,260 ms of time."""
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
    """A loaded embedding model. Thread-safe; one thread encodes at a time.

    Attributes:
        fingerprint: identity of the weights; vectors of different ones are not comparable.
        width: length of a vector.
        max_tokens: tokens of the longest text that is embedded as a whole.
    """

    def __init__(
        self,
        path: Path,
        *,
        probe_cache: Path | None = None,
        threads: int = 0,
        pausable: bool = False,
    ) -> None:
        """Args:
            probe_cache: as for `engines.llama.model.load`.
            threads: 0 for one per physical core.
            pausable: whether a pass pauses in `datastores.pauses`. Not beside other threads, since
                it takes the interpreter lock between any two operations of the model.

        Raises:
            ModelError: missing, damaged or hostile, not an embedding model, or out of memory.
        """
        check_header(path)
        if probe_cache is not None:
            probe_once(path, probe_cache, lib.llama_version().decode(), embedding=True)
        self.path = path
        self.fingerprint = fingerprint(path)
        self._threads = threads or default_threads()
        self._weights, self._context = open_fitting(
            path, None, lambda weights: (weights, _open(weights, self._threads))
        )
        self._pooling = _pooling(self._weights)
        if pausable:
            lib.llama_set_abort_callback(self._context, _PAUSE, None)
        self.width = self._weights.width
        self._vocabulary = LlamaVocabulary(self._weights)
        self.max_tokens = min(MICRO_BATCH, self._weights.trained_length)
        self._batch = Batch(MICRO_BATCH)
        self._lock = Lock()
        self._memory: Any = lib.llama_get_memory(self._context)
        name = f"{self._weights.metadata('general.name')} {path.stem}".lower().replace(" ", "-")
        found = (prefixes for part, *prefixes in PREFIXES if part in name)
        self._query_prefix, self._passage_prefix = next(found, ("", ""))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Unit vectors, float32 [texts, width], of texts without a prefix; of a long one, its
        beginning.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        vectors = [one.vector for one in self._encode(texts)]
        return np.array(vectors, np.float32).reshape(len(texts), self.width)

    def count(self, text: str) -> int:
        """Number of tokens of `text`, those that begin and end it included."""
        return len(self._vocabulary.encode(text, ends=True))

    def encode_queries(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings of queries.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        return self._encode([self._query_prefix + text for text in texts])

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings of passages; of a long one, of its beginning.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        return self._encode([self._passage_prefix + text for text in texts])

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        tokens = [self._tokenize(text) for text in texts]
        with self._lock:
            passes = split_into_passes(tokens, MAX_TEXTS)
            return [one for part in passes for one in self._evaluate(part)]

    def _evaluate(self, texts: Sequence[list[int]]) -> Iterator[Encoding]:
        self._batch.fill(texts)
        if self._memory:
            lib.llama_memory_clear(self._memory, True)
        small = self._batch.struct.n_tokens * self._weights.parameters < MIN_SHARED
        threads = 1 if small and not self._weights.on_device else self._threads
        native.set_threads(self._context, threads, threads)
        evaluate(self._context, self._batch, self.path)
        rows = (self._batch.struct.n_tokens, self.width)
        states = np.ctypeslib.as_array(lib.llama_get_embeddings(self._context), rows).copy()
        last = 0
        for tokens in texts:
            first, last = last, last + len(tokens)
            vector, here = self._pooling(states[first:last]), states[first:last]
            lengths = np.linalg.norm([vector, *here], axis=1)
            if not (lengths > 0).all() or not np.isfinite(lengths).all():
                raise ModelError(f"{self.path} gives no vector for a text: choose another model")
            yield Encoding(vector / lengths[0], here / lengths[1:, None])

    def _tokenize(self, text: str) -> list[int]:
        """Token ids, with those that begin and end a text; a long text keeps its last one."""
        tokens = self._vocabulary.encode(text, ends=True)
        longest = self.max_tokens
        return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


def _paused(_data: int | None) -> bool:
    """Called by llama.cpp between two operations; whether to abort the pass."""
    pause_here()
    return False


_PAUSE = lib.ggml_abort_callback(_paused)
"""Referenced here because llama.cpp stores only the bare pointer."""


def _open(weights: Weights, threads: int) -> Any:
    """A context that outputs the states of all tokens."""
    parameters = context_parameters(MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, threads, 0)
    return open_context(weights, parameters)


def _pooling(weights: Weights) -> Callable[[Floats], Floats]:
    """How the states [tokens, width] of a text become its vector [width].

    Raises:
        ModelError: the model ranks texts.
    """
    kind = int(weights.metadata(f"{weights.metadata('general.architecture')}.pooling_type") or 0)
    if kind == lib.LLAMA_POOLING_TYPE_RANK:
        raise ModelError(
            f"{weights.path} ranks texts instead of embedding them: choose another model"
        )
    if kind == lib.LLAMA_POOLING_TYPE_CLS:
        return lambda states: states[0]
    if kind == lib.LLAMA_POOLING_TYPE_LAST:
        return lambda states: states[-1]
    return lambda states: states.mean(axis=0)
