"""Logits of a draft model or a head over whole answers, for measurements outside torch."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.head import (
    HeadModel,
    OutputMatrix,
    first_logits,
    make_head_batch,
    read_weights,
)
from engines.distillation.weights import read_llama_file
from engines.target import Floats


class Reader(Protocol):
    """Evaluates answers with a draft model or a head."""

    def answer_logits(self, record: ReplayRecord) -> Floats:
        """float32 [n, vocabulary], the distributions of the last n tokens of the answer."""


class DraftModelReader:
    """A draft model's file, read into torch."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError: the file cannot be read, or cannot be trained."""
        self._model = read_llama_file(path).model()

    @torch.no_grad()
    def answer_logits(self, record: ReplayRecord) -> Floats:
        """float32 [answer, vocabulary]: row i is the distribution of answer token i."""
        ids = torch.from_numpy(record.tokens.astype("int64")).unsqueeze(0)
        hidden = self._model(ids)[0, record.prompt_length - 1 : -1]
        logits: Floats = self._model.logits(hidden).numpy()
        return logits


class HeadReader:
    """A head's file, read into torch."""

    def __init__(self, path: Path, matrix: OutputMatrix) -> None:
        """Args:
        matrix: the target's output matrix.

        Raises:
            ModelError: the file cannot be read.
        """
        weights, tokens = read_weights(path)
        self._vocabulary = matrix.vocabulary(tokens)
        self._model = HeadModel(matrix.width)
        self._model.load_state_dict(weights)
        self._model.eval()

    def answer_logits(self, record: ReplayRecord) -> Floats:
        """float32 [answer - 1, vocabulary]: no state precedes the first token."""
        batch = make_head_batch([record], self._vocabulary)
        drafted = first_logits(self._model, batch, self._vocabulary)[:, :-1]
        logits = np.full((len(drafted), len(self._vocabulary.index)), -np.inf, np.float32)
        logits[:, self._vocabulary.tokens.numpy()] = drafted.numpy()
        return logits

    def acceptances(self, record: ReplayRecord) -> Floats:
        """Σ min(p, q) over the target's probable tokens, at each drafted position of a trainable
        record: float32 [n]."""
        batch = make_head_batch([record], self._vocabulary)
        shares = first_logits(self._model, batch, self._vocabulary).softmax(dim=1)
        drafted = shares.gather(1, batch.likely[:, 0])
        overlap: Floats = torch.minimum(drafted, batch.chances[:, 0]).sum(dim=1).numpy()
        return overlap
