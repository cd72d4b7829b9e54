"""An embedding model: unit vectors of texts, with the prefixes that some models expect.

A query has one vector. A passage has one for each of its units, the mean of the unit's own token
states after one pass over the whole passage (late chunking: Günther et al., arXiv 2409.04701): a
sentence is found by what it says, and its heading and neighbours tell what it is about. A model
that does not pool by the mean gives a passage one vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
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


@dataclass(frozen=True, slots=True)
class _TokenizedText:
    """A text with the tokens of each vector that it has; none for all of them."""

    tokens: list[int]
    units: Sequence[slice]


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
        self._weights, (self._context, self._pooled) = open_fitting(
            path, None, lambda weights: (weights, _open(weights, self._threads))
        )
        if pausable:
            lib.llama_set_abort_callback(self._context, _PAUSE, None)
        self.width = self._weights.width
        self._vocabulary = LlamaVocabulary(self._weights)
        self._begin, self._end = _ends(self._vocabulary)
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
        return self._encode_whole(texts)

    def count(self, text: str) -> int:
        """Number of tokens of `text`, those that begin and end it included."""
        return len(self._vocabulary.encode(text, ends=True))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Unit vectors, float32 [texts, width], of queries.

        Raises:
            ModelError: the model cannot evaluate a text.
        """
        return self._encode_whole([self._query_prefix + text for text in texts])

    def encode_passages(self, passages: Iterable[tuple[str, Sequence[str]]]) -> list[Floats]:
        """Unit vectors, float32 [units, width], of each passage, given as its introduction and its
        units; of a long one, of the units at its beginning.

        Raises:
            ModelError: the model cannot evaluate a passage.
        """
        return self._encode([self._tokenize(*passage) for passage in passages])

    def _encode_whole(self, texts: Sequence[str]) -> Floats:
        found = self._encode([_TokenizedText(self._cut(text), ()) for text in texts])
        return np.concatenate(found) if found else np.empty((0, self.width), np.float32)

    def _encode(self, texts: Sequence[_TokenizedText]) -> list[Floats]:
        units = iter([text.units for text in texts])
        with self._lock:
            passes = split_into_passes([text.tokens for text in texts], MAX_TEXTS)
            return [
                vectors
                for part in passes
                for vectors in self._evaluate(part, islice(units, len(part)))
            ]

    def _evaluate(
        self, texts: Sequence[list[int]], units: Iterable[Sequence[slice]]
    ) -> Iterator[Floats]:
        self._batch.fill(texts)
        if self._memory:
            lib.llama_memory_clear(self._memory, True)
        small = self._batch.struct.n_tokens * self._weights.parameters < MIN_SHARED
        threads = 1 if small and not self._weights.on_device else self._threads
        native.set_threads(self._context, threads, threads)
        evaluate(self._context, self._batch, self.path)
        first = 0
        for sequence, (tokens, its) in enumerate(zip(texts, units, strict=True)):
            if self._pooled:
                vectors = self._output(lib.llama_get_embeddings_seq(self._context, sequence), 1)
            else:
                states = self._output(lib.llama_get_embeddings(self._context), first + len(tokens))
                states = states[first:]
                vectors = np.array([states[one].mean(axis=0) for one in its or [slice(None)]])
            first += len(tokens)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            if not ((lengths > 0.0) & (lengths < np.inf)).all():
                raise ModelError(f"{self.path} gives no vector for a text: choose another model")
            yield vectors / lengths

    def _output(self, pointer: Any, rows: int) -> Floats:
        """A view of float32 [rows, width], valid until the next pass."""
        return np.ctypeslib.as_array(pointer, (rows, self.width))

    def _tokenize(self, introduction: str, units: Sequence[str]) -> _TokenizedText:
        """The tokens of a passage, and of its units that are not beyond the model's length."""
        tokens = self._begin + self._vocabulary.encode(self._passage_prefix + introduction)
        longest = self.max_tokens - len(self._end)
        slices = []
        for unit in units:
            first = len(tokens)
            tokens += self._vocabulary.encode(unit)
            slices.append(slice(first, min(len(tokens), longest)))
        held = [one for one in slices if one.start < one.stop]
        return _TokenizedText([*tokens[:longest], *self._end], held)

    def _cut(self, text: str) -> list[int]:
        """Token ids, with those that begin and end a text, of as much as the model can read."""
        tokens = self._begin + self._vocabulary.encode(text)
        return [*tokens[: self.max_tokens - len(self._end)], *self._end]


def _paused(_data: int | None) -> bool:
    """Called by llama.cpp between two operations; whether to abort the pass."""
    pause_here()
    return False


_PAUSE = lib.ggml_abort_callback(_paused)
"""Referenced here because llama.cpp stores only the bare pointer."""


def _ends(vocabulary: LlamaVocabulary) -> tuple[list[int], list[int]]:
    """The tokens that begin and end a text."""
    one = vocabulary.encode("a")
    text = vocabulary.encode("a", ends=True)
    first = next(at for at in range(len(text)) if text[at : at + len(one)] == one)
    return text[:first], text[first + len(one) :]


def _open(weights: Weights, threads: int) -> tuple[Any, bool]:
    """A context, and whether it pools the states of a text; if not, their mean is its vector."""
    parameters = context_parameters(MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, threads, 0)
    parameters.pooling_type = lib.LLAMA_POOLING_TYPE_UNSPECIFIED
    handle = open_context(weights, parameters)
    kind = lib.llama_pooling_type(handle)
    if kind == lib.LLAMA_POOLING_TYPE_RANK:
        raise ModelError(
            f"{weights.path} ranks texts instead of embedding them: choose another model"
        )
    # Layers after pooling are applied to pooled states alone.
    architecture = weights.metadata("general.architecture")
    projected = weights.metadata(f"{architecture}.dense_2_feat_out")
    if kind == lib.LLAMA_POOLING_TYPE_NONE or (
        kind == lib.LLAMA_POOLING_TYPE_MEAN and not projected
    ):
        parameters.pooling_type = lib.LLAMA_POOLING_TYPE_NONE
        return open_context(weights, parameters), False
    return handle, True
