"""An embedding model: unit vectors of texts and of their tokens, with the prefixes that some models
expect.

llama.cpp is asked for the states of all tokens, and they are pooled here, since it outputs either
the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
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
from engines.llama.bf16_copy import bf16_copy
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
MAX_PARALLEL = 4
"""Passes that run at once, each in a context, which takes 63 MB for all-MiniLM-L6-v2."""
MAX_PARALLEL_WEIGHTS = 1.5e8
"""Weights up to which passes run at once, instead of one after another by all threads. Operations
of small models are so short that threads wait for each other: two took 270 and 195 µs of CPU for a
token, 249 and 166 apart (all-MiniLM-L6-v2 in 8 bits and BF16, minimum of 14 on two busy cores; the
medians 296 and 231, 256 and 170)."""
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
        """Args:
            probe_cache: as for `engines.llama.model.load`.
            threads: 0 for one per physical core.
            pausable: whether a pass pauses in `datastores.pauses`. Not beside other threads, since
                it takes the interpreter lock between any two operations of the model.
            many: whether hundreds of tokens are to be encoded, for which `bf16_copy` pays off.

        Raises:
            ModelError: missing, damaged or hostile, not an embedding model, or out of memory.
        """
        check_header(path)
        if probe_cache is not None:
            probe_once(path, probe_cache, lib.llama_version().decode(), embedding=True)
        self.path = path
        self.fingerprint = fingerprint(path)
        self._threads = threads or default_threads()
        with bf16_copy(path) if many else nullcontext(path) as file:
            self._weights, first = open_fitting(
                file, None, lambda weights: (weights, _TextContext(weights, path, pausable))
            )
        self._contexts = [first]
        self.width = self._weights.width
        self._vocabulary = LlamaVocabulary(self._weights)
        self.max_tokens = min(MICRO_BATCH, self._weights.trained_length)
        small = self._weights.parameters <= MAX_PARALLEL_WEIGHTS and not self._weights.on_device
        self.parallel = min(self._threads, MAX_PARALLEL) if small and not pausable else 1
        self._lock = Lock()
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
            passes = list(split_into_passes(tokens, MAX_TEXTS))
            if min(len(passes), self.parallel) < 2:
                return [one for part in passes for one in self._alone(part)]
            return self._encode_in_parallel(passes)

    def _alone(self, texts: Sequence[list[int]]) -> list[Encoding]:
        """The encodings of one pass."""
        small = sum(map(len, texts)) * self._weights.parameters < MIN_SHARED
        alone = small and not self._weights.on_device
        return self._contexts[0].encode(texts, 1 if alone else self._threads)

    def _encode_in_parallel(self, passes: Sequence[Sequence[list[int]]]) -> list[Encoding]:
        """The encodings of several passes, each in a context with a share of the threads."""
        while len(self._contexts) < min(len(passes), self.parallel):
            self._contexts.append(_TextContext(self._weights, self.path))
        share = self._threads // self.parallel
        idle = SimpleQueue[_TextContext]()
        for context in self._contexts:
            idle.put(context)

        def encode(texts: Sequence[list[int]]) -> list[Encoding]:
            context = idle.get()
            try:
                return context.encode(texts, share)
            finally:
                idle.put(context)

        with ThreadPoolExecutor(len(self._contexts), "embedding") as threads:
            return list(chain.from_iterable(threads.map(encode, passes)))

    def _tokenize(self, text: str) -> list[int]:
        """Token ids, with those that begin and end a text; a long text keeps its last one."""
        tokens = self._vocabulary.encode(text, ends=True)
        longest = self.max_tokens
        return tokens if len(tokens) <= longest else [*tokens[: longest - 1], tokens[-1]]


class _TextContext:
    """A context that outputs the states of all tokens of whole texts, for one thread at a time.

    Args:
        path: the file of the model, for errors.
        pausable: as for `EmbeddingModel`.
    """

    def __init__(self, weights: Weights, path: Path, pausable: bool = False) -> None:
        self._path = path
        self._width = weights.width
        parameters = context_parameters(MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, 1, 0)
        self._handle = open_context(weights, parameters)
        self._memory: Any = lib.llama_get_memory(self._handle)
        self._pooling = _pooling(weights, path)
        self._batch = Batch(MICRO_BATCH)
        if pausable:
            lib.llama_set_abort_callback(self._handle, _PAUSE, None)

    def encode(self, texts: Sequence[list[int]], threads: int) -> list[Encoding]:
        """The encodings of texts that fit into one pass.

        Raises:
            ModelError: the model cannot evaluate them, or gives no vector for one.
        """
        self._batch.fill(texts)
        if self._memory:
            lib.llama_memory_clear(self._memory, True)
        native.set_threads(self._handle, threads, threads)
        evaluate(self._handle, self._batch, self._path)
        rows = (self._batch.struct.n_tokens, self._width)
        states = np.ctypeslib.as_array(lib.llama_get_embeddings(self._handle), rows).copy()
        ends = np.cumsum([len(tokens) for tokens in texts])[:-1]
        return [self._encoding(own) for own in np.split(states, ends)]

    def _encoding(self, states: Floats) -> Encoding:
        vector = self._pooling(states)
        lengths = np.linalg.norm([vector, *states], axis=1)
        if not (lengths > 0).all() or not np.isfinite(lengths).all():
            raise ModelError(f"{self._path} gives no vector for a text: choose another model")
        return Encoding(vector / lengths[0], states / lengths[1:, None])


def _paused(_data: int | None) -> bool:
    """Called by llama.cpp between two operations; whether to abort the pass."""
    pause_here()
    return False


_PAUSE = lib.ggml_abort_callback(_paused)
"""Referenced here because llama.cpp stores only the bare pointer."""


def _pooling(weights: Weights, path: Path) -> Callable[[Floats], Floats]:
    """How the states [tokens, width] of a text become its vector [width].

    Raises:
        ModelError: the model ranks texts.
    """
    kind = int(weights.metadata(f"{weights.metadata('general.architecture')}.pooling_type") or 0)
    if kind == lib.LLAMA_POOLING_TYPE_RANK:
        raise ModelError(f"{path} ranks texts instead of embedding them: choose another model")
    if kind == lib.LLAMA_POOLING_TYPE_CLS:
        return lambda states: states[0]
    if kind == lib.LLAMA_POOLING_TYPE_LAST:
        return lambda states: states[-1]
    return lambda states: states.mean(axis=0)
