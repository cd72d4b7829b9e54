"""A question model: how likely a question is, given a text that answers it.

A small model trained only for this (`assets.recipe`). The prompt frame and the length limits are
those of its training. Several texts are evaluated in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from engines.llama.batch import MICRO_BATCH, Batch, evaluate, split_into_passes
from engines.llama.context import Weights, context_parameters, open_context
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
        parameters = context_parameters(
            MICRO_BATCH, MICRO_BATCH, MAX_TEXTS, threads or default_threads(), plain_rows=0
        )
        parameters.embeddings = False
        self._context = open_context(self._weights, parameters)
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
        framed = [self._frame(text) + asked for text in texts]
        with self._lock:
            passes = split_into_passes(framed, MAX_TEXTS)
            return [value for part in passes for value in self._evaluate(part, asked)]

    def _frame(self, text: str) -> list[int]:
        said = self._vocabulary.encode(text)[:MAX_TEXT_TOKENS]
        return [*self._before, *said, *self._between]

    def _evaluate(self, texts: Sequence[list[int]], question: list[int]) -> Iterator[float]:
        """For `texts`, each of which ends with `question`."""
        batch, count = self._batch, len(question)
        batch.fill(texts)
        batch.logits[:] = 0
        for end in accumulate(map(len, texts)):
            batch.logits[end - count - 1 : end - 1] = 1
        lib.llama_memory_clear(self._memory, True)
        evaluate(self._context, batch, self.path)
        logits = self._views.first(count * len(texts)).logits
        for rows in np.split(logits, len(texts)):
            yield log_likelihood(rows, question)


def log_likelihood(logits: Floats, tokens: Sequence[int]) -> float:
    """The log-likelihood of `tokens`, by the logits before each (float32 [tokens, vocabulary])."""
    highest = logits.max(axis=1)
    sums = np.exp(logits - highest[:, None]).sum(axis=1)
    chosen = logits[np.arange(len(tokens)), tokens]
    return float((chosen - highest - np.log(sums)).sum())
