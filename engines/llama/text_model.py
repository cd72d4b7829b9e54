"""A model that reads whole texts and keeps nothing of them: what embedding models and
cross-encoders have in common.

It loads the file, tokenizes, and runs passes, several at once where that is faster. What is read
from a pass is up to a `Reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from llama_cpp import llama_cpp as lib

from datastores.pauses import pause_here
from engines.llama import native
from engines.llama.batch import MICRO_BATCH, Batch, evaluate
from engines.llama.bf16_copy import bf16_copy
from engines.llama.context import Weights, context_parameters, open_context
from engines.llama.gguf import ARCHITECTURE, check_header
from engines.llama.model import open_fitting
from engines.llama.probe import probe_once
from engines.llama.threads import default_threads
from engines.llama.vocabulary import LlamaVocabulary

MAX_TEXTS = 32
"""Maximum number of texts in one pass."""
MIN_SHARED = 2e9
"""Tokens times weights of a pass from which several threads share it: below, it takes some 10 ms of
one, and on a busy machine the others arrive late. A question of 12 tokens took 4 ms of CPU with one
thread of two and 15 ms with both (all-MiniLM-L6-v2); beside load 5 and up to 1,260 ms of time."""
MAX_PARALLEL = 4
"""Passes that run at once, each in a context."""
MAX_PARALLEL_WEIGHTS = 1.5e8
"""Weights up to which passes run at once, instead of one after another by all threads. Operations
of small models are so short that threads wait for each other: two took 270 and 195 µs of CPU for a
token, 249 and 166 apart (all-MiniLM-L6-v2 in 8 bits and BF16, minimum of 14 on two busy cores; the
medians 296 and 231, 256 and 170)."""

Result = TypeVar("Result")


class Reader(Protocol[Result]):
    """What is read from a pass.

    Attributes:
        pooling: llama.cpp's number of what it outputs: states of tokens, or one result a text.
    """

    pooling: int

    def __call__(self, context: Any, lengths: Sequence[int]) -> list[Result]:
        """A result for each text of the pass that `context` ran, by their numbers of tokens.

        Raises:
            ModelError: the model gives none.
        """


class TextModel(Generic[Result]):
    """A loaded model. Thread-safe; the calls take turns.

    Attributes:
        weights: the open file.
        vocabulary: its tokenizer.
        max_tokens: tokens of the longest text.
        parallel: number of passes that run at once.
    """

    def __init__(
        self,
        path: Path,
        make_reader: Callable[[Weights], Reader[Result]],
        *,
        kind: str,
        probe_cache: Path | None = None,
        threads: int = 0,
        pausable: bool = False,
        many: bool = False,
    ) -> None:
        """Args:
            make_reader: raises ModelError if the model is of another kind.
            kind: as for `engines.llama.probe.probe_once`.
            probe_cache: as for `engines.llama.model.load`.
            threads: 0 for one per physical core.
            pausable: whether a pass pauses in `datastores.pauses`. Not beside other threads, since
                it takes the interpreter lock between any two operations of the model.
            many: whether 500 tokens or more are to be read, for which `bf16_copy` pays off.

        Raises:
            ModelError: missing, damaged or hostile, of another kind, or out of memory.
        """
        check_header(path)
        if probe_cache is not None:
            probe_once(path, probe_cache, lib.llama_version().decode(), kind)
        self._path = path
        self._make_reader = make_reader
        self._threads = threads or default_threads()
        with bf16_copy(path) if many else nullcontext(path) as file:
            self.weights, first = open_fitting(
                file, None, lambda weights: (weights, self._open(weights, pausable))
            )
        self._contexts = [first]
        self.vocabulary = LlamaVocabulary(self.weights)
        self.max_tokens = min(MICRO_BATCH, self.weights.trained_length)
        small = self.weights.parameters <= MAX_PARALLEL_WEIGHTS and not self.weights.on_device
        self.parallel = min(self._threads, MAX_PARALLEL) if small and not pausable else 1
        self._lock = Lock()

    def run(self, passes: Sequence[Sequence[list[int]]]) -> list[list[Result]]:
        """The results of each pass: of up to `MAX_TEXTS` texts, as token ids, which have
        `MICRO_BATCH` tokens together at most.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        with self._lock:
            if min(len(passes), self.parallel) < 2:
                return [self._run_alone(texts) for texts in passes]
            return self._run_in_parallel(passes)

    def _open(self, weights: Weights, pausable: bool = False) -> _TextContext[Result]:
        return _TextContext(weights, self._path, self._make_reader(weights), pausable)

    def _run_alone(self, texts: Sequence[list[int]]) -> list[Result]:
        small = sum(map(len, texts)) * self.weights.parameters < MIN_SHARED
        alone = small and not self.weights.on_device
        return self._contexts[0].run(texts, 1 if alone else self._threads)

    def _run_in_parallel(self, passes: Sequence[Sequence[list[int]]]) -> list[list[Result]]:
        """Each in a context with a share of the threads."""
        while len(self._contexts) < min(len(passes), self.parallel):
            self._contexts.append(self._open(self.weights))
        share = self._threads // self.parallel
        idle = SimpleQueue[_TextContext[Result]]()
        for context in self._contexts:
            idle.put(context)

        def run(texts: Sequence[list[int]]) -> list[Result]:
            context = idle.get()
            try:
                return context.run(texts, share)
            finally:
                idle.put(context)

        with ThreadPoolExecutor(len(self._contexts), "texts") as threads:
            return list(threads.map(run, passes))


class _TextContext(Generic[Result]):
    """A context that evaluates whole texts, for one thread at a time.

    llama.cpp allocates a row of logits for each token of the longest pass, which nothing computes:
    122 kB each, 31 MB for all-MiniLM-L6-v2 and 256 tokens.

    Args:
        path: the file of the model, for errors.
        pausable: as for `TextModel`.
    """

    def __init__(
        self, weights: Weights, path: Path, reader: Reader[Result], pausable: bool
    ) -> None:
        self._path = path
        self._read = reader
        parameters = context_parameters(MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, 1, 0)
        parameters.pooling_type = reader.pooling
        self._handle = open_context(weights, parameters)
        self._memory: Any = lib.llama_get_memory(self._handle)
        self._batch = Batch(MICRO_BATCH)
        if pausable:
            lib.llama_set_abort_callback(self._handle, _PAUSE, None)

    def run(self, texts: Sequence[list[int]], threads: int) -> list[Result]:
        """The results of texts that fit into one pass.

        Raises:
            ModelError: the model cannot evaluate them, or gives no result for one.
        """
        self._batch.fill(texts)
        if self._memory:
            lib.llama_memory_clear(self._memory, True)
        native.set_threads(self._handle, threads, threads)
        evaluate(self._handle, self._batch, self._path)
        return self._read(self._handle, [len(tokens) for tokens in texts])


def pooling_type(weights: Weights) -> int:
    """llama.cpp's number of how the file says that states of tokens become one result."""
    architecture = weights.metadata(ARCHITECTURE)
    return int(weights.metadata(f"{architecture}.pooling_type") or 0)


def _paused(_data: int | None) -> bool:
    """Called by llama.cpp between two operations; whether to abort the pass."""
    pause_here()
    return False


_PAUSE = lib.ggml_abort_callback(_paused)
"""Referenced here because llama.cpp stores only the bare pointer."""
