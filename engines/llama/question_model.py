"""A question model: how likely a question is, given a text that answers it.

A small model trained only for this (`assets.recipe`). The prompt frame and the length limits are
those of its training. Several texts are evaluated in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.context import (
    MICRO_BATCH,
    Batch,
    Weights,
    context_parameters,
    free_with,
    split_into_passes,
)
from engines.llama.forward import OutputViews
from engines.llama.gguf import check_header
from engines.llama.threads import default_threads
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Floats

MAX_TEXTS = 32
"""Maximum number of texts in one pass."""
MAX_TEXT_TOKENS, MAX_QUESTION_TOKENS = 128, 64
"""Longer texts and questions are cut, as training had none."""
TEXT_FRAME = ("<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n")
END = "<|im_end|>"

Framed = tuple[list[int], int]
"""The tokens of a text followed by the question, and the number of the question's tokens."""


class LlamaQuestionModel:
    """Implements `engines.retrieval.protocol.QuestionModel`. Thread-safe."""

    def __init__(self, path: Path, threads: int = 0) -> None:
        """Args:
            threads: 0 for one per physical core.

        Raises:
            ModelError: missing, damaged, or out of memory.
        """
        check_header(path)
        self.path = path
        self._weights = Weights(path)
        self._context = _open(self._weights, threads or default_threads())
        self._memory: Any = lib.llama_get_memory(self._context)
        self._vocabulary = LlamaVocabulary(self._weights)
        before, between, end = (
            self._vocabulary.encode(text, special=True) for text in (*TEXT_FRAME, END)
        )
        self._before, self._between, self._end = before, between, end
        self._batch = Batch(MICRO_BATCH)
        self._views = OutputViews(self._context, self._weights.vocabulary_size, 0, self._weights)
        self._lock = Lock()

    def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
        """The log-probability (base e) of `question` and its end after each of `texts`.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        asked = [*self._vocabulary.encode(question)[:MAX_QUESTION_TOKENS], *self._end]
        framed = [(self._frame(text) + asked, len(asked)) for text in texts]
        with self._lock:
            passes = split_into_passes(framed, lambda one: len(one[0]), MAX_TEXTS)
            return [value for part in passes for value in self._evaluate(part)]

    def _frame(self, text: str) -> list[int]:
        said = self._vocabulary.encode(text)[:MAX_TEXT_TOKENS]
        return [*self._before, *said, *self._between]

    def _evaluate(self, texts: Sequence[Framed]) -> Iterator[float]:
        batch, row = self._batch, 0
        outputs: list[list[int]] = []
        for sequence, (tokens, asked) in enumerate(texts):
            rows = slice(row, row + len(tokens))
            batch.token[rows], batch.position[rows] = tokens, range(len(tokens))
            batch.logits[rows] = 0
            batch.logits[rows.stop - asked - 1 : rows.stop - 1] = 1
            for row in range(rows.start, rows.stop):
                batch.place(row, (sequence,))
            row = rows.stop
            outputs.append(tokens[-asked:])
        batch.struct.n_tokens = row
        lib.llama_memory_clear(self._memory, True)
        native.clear_errors()
        if native.decode(self._context, batch.struct):
            raise ModelError(f"{self.path} cannot be run: {native.first_error()}")
        native.synchronize(self._context)
        logits = self._views.first(sum(map(len, outputs))).logits
        ends = np.cumsum([len(wanted) for wanted in outputs]).tolist()
        for wanted, end in zip(outputs, ends, strict=True):
            yield log_likelihood(logits[end - len(wanted) : end], wanted)


def log_likelihood(logits: Floats, tokens: Sequence[int]) -> float:
    """The log-likelihood of `tokens`, by the logits before each (float32 [tokens, vocabulary])."""
    highest = logits.max(axis=1)
    sums = np.exp(logits - highest[:, None]).sum(axis=1)
    chosen = logits[np.arange(len(tokens)), tokens]
    return float((chosen - highest - np.log(sums)).sum())


def _open(weights: Weights, threads: int) -> Any:
    parameters = context_parameters(MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, threads, 0)
    parameters.embeddings = False
    native.clear_errors()
    handle = lib.llama_init_from_model(weights.handle, parameters)
    if not handle:
        raise ModelError(f"{weights.path} cannot be opened: {native.first_error()}")
    free_with(weights, lib.llama_free, handle)
    return handle
