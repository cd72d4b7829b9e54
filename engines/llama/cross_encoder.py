"""A cross-encoder: how sure a model is that a passage states the answer to a question.

It reads both at once, so that it sees what a comparison of two vectors does not: for whom, when and
how much. (Nogueira and Cho, "Passage Re-ranking with BERT", 2019.) Trained only for this by
`assets.recipe.cross_encoder`; the limits of length are those of its training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama.context import Weights
from engines.llama.gguf import CLASSIFIER, read_metadata
from engines.llama.probe import RANKING
from engines.llama.text_model import TextModel, pooling_type
from engines.llama.vocabulary import LlamaVocabulary

MAX_TOKENS, MAX_QUESTION_TOKENS = 256, 80
"""Tokens of question and passage together, and of the question. What is longer is cut."""
QUESTION_ENDS = " ?.!"
"""Left out at the end of a question, where some people write them and some do not."""
MIN_PASS = 64
"""Tokens from which a pass uses llama.cpp's faster attention (`Q_TILE_SZ`), whose last bits differ.
A text of 60 tokens took 336 µs of CPU a token, two of them in one pass 137."""


class CrossEncoder:
    """A loaded cross-encoder. Thread-safe; the calls take turns."""

    def __init__(self, path: Path, *, probe_cache: Path | None = None, threads: int = 0) -> None:
        """The arguments are those of `TextModel`.

        Raises:
            ModelError: missing, damaged or hostile, not a cross-encoder, or out of memory.
        """
        self._model = TextModel(
            path,
            partial(_ScoreReader, path),
            kind=RANKING,
            probe_cache=probe_cache,
            threads=threads,
            many=True,
        )

    def log_odds(self, question: str, passages: Sequence[str]) -> list[float]:
        """The log-odds (base e) that each of `passages` states the answer to `question`.

        They do not depend on one another: each has a pass of its own, since what else is in a pass
        changes the order of sums in attention, and a score by up to .05.

        Raises:
            ModelError: the model cannot evaluate them, or gives no finite score.
        """
        texts = [pair(self._model.vocabulary, question, passage) for passage in passages]
        # The longest first, since llama.cpp's buffers grow with the length.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        scores = [0.0] * len(texts)
        found = self._model.run([_filled(texts[index]) for index in order])
        for index, (score, *_) in zip(order, found, strict=True):
            scores[index] = score
        return scores


def pair(vocabulary: LlamaVocabulary, question: str, passage: str) -> list[int]:
    """The token ids from which a passage is scored for a question."""
    begin, end = vocabulary.bos, vocabulary.separator
    asked = vocabulary.encode(question.rstrip(QUESTION_ENDS))[:MAX_QUESTION_TOKENS]
    said = vocabulary.encode(passage)[: MAX_TOKENS - len(asked) - 3]
    return [begin, *asked, end, *said, end]


def _filled(text: list[int]) -> list[list[int]]:
    """A pass with `text`, repeated until it has `MIN_PASS` tokens."""
    copies, rest = divmod(max(MIN_PASS - len(text), 0), len(text))
    return [text] * (1 + copies) + ([text[:rest]] if rest else [])


class _ScoreReader:
    """Reads one score a text.

    Raises:
        ModelError: the model is no cross-encoder.
    """

    pooling = lib.LLAMA_POOLING_TYPE_RANK

    def __init__(self, path: Path, weights: Weights) -> None:
        self._path = path
        vocabulary = LlamaVocabulary(weights)
        fits = (
            pooling_type(weights) == self.pooling,
            CLASSIFIER in read_metadata(path).tables,
            lib.llama_model_n_cls_out(weights.handle) == 1,
            min(vocabulary.bos, vocabulary.separator) >= 0,
            weights.trained_length >= MAX_TOKENS,
        )
        if not all(fits):
            raise ModelError(
                f"{path} does not score a passage for a question: choose a cross-encoder"
            )

    def __call__(self, context: Any, lengths: Sequence[int]) -> list[float]:
        scores = [lib.llama_get_embeddings_seq(context, text)[0] for text in range(len(lengths))]
        if not np.isfinite(scores).all():
            raise ModelError(f"{self._path} gives no finite score: choose another cross-encoder")
        return scores
