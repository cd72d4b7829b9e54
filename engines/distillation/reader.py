"""Evaluates whole answers with a draft model or a head, for measurements outside torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.acceptance import PREFERRED, Shares, answer_acceptances
from engines.distillation.batches import ROW_ELEMENTS
from engines.distillation.head import (
    HeadModel,
    draft_vocabulary,
    first_logits,
    make_head_batch,
    read_weights,
)
from engines.distillation.model import Llama
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.weights import read_llama_file
from engines.sampler import Sampling
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

    def answer_logits(self, record: ReplayRecord) -> Floats:
        """float32 [answer, vocabulary]: row i is the distribution of answer token i."""
        return np.concatenate(list(_logits(self._model, record)))


@torch.no_grad()
def _logits(model: Llama, record: ReplayRecord) -> Iterator[Floats]:
    """The logits of every token of an answer, in pieces of bounded memory."""
    hidden = model(torch.from_numpy(record.tokens.astype("int64")).unsqueeze(0))
    for states in hidden[0, record.prompt_length - 1 : -1].split(
        max(1, ROW_ELEMENTS // model.shape.vocabulary)
    ):
        yield model.logits(states).numpy()


def evaluate(
    model: Llama, records: Sequence[ReplayRecord], sampling: Sampling
) -> tuple[float, float]:
    """α of a draft model, and the share of positions where it prefers the target's most probable
    token; zeros without records."""
    accepted = agreed = total = 0.0
    for record in records:
        first = record.prompt_length
        for logits in _logits(model, record):
            accepted += float(answer_acceptances(record, first, logits, sampling).sum())
            agreed += float(answer_acceptances(record, first, logits, PREFERRED).sum())
            first += len(logits)
        total += first - record.prompt_length
    return (accepted / total, agreed / total) if total else (0.0, 0.0)


class HeadReader:
    """A head's file, read into torch."""

    def __init__(self, path: Path, matrix: OutputMatrix) -> None:
        """Args:
        matrix: the target's output matrix.

        Raises:
            ModelError: the file cannot be read.
        """
        weights, tokens = read_weights(path)
        self._vocabulary = draft_vocabulary(matrix, tokens)
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

    def acceptances(self, record: ReplayRecord, sampling: Sampling) -> Shares:
        """α at each token of a trainable record's answer that follows a state, [n]."""
        batch = make_head_batch([record], self._vocabulary)
        logits = first_logits(self._model, batch, self._vocabulary).numpy()
        columns = self._vocabulary.index.numpy()
        return answer_acceptances(record, record.prompt_length + 1, logits, sampling, columns)
