"""A student's logits over whole answers, for those who measure it without knowing torch."""

from __future__ import annotations

from pathlib import Path

import torch

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.model import Llama
from engines.distillation.weights import read_student, write_student
from engines.target import Floats


class StudentReader:
    """A student's file, read into torch."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError: it cannot be read, or cannot be trained."""
        self._model = read_student(path).model()

    @torch.no_grad()
    def answer_logits(self, record: ReplayRecord) -> Floats:
        """float32 [answer, vocabulary]: row i is the distribution of answer token i."""
        ids = torch.from_numpy(record.tokens.astype("int64")).unsqueeze(0)
        hidden = self._model(ids)[0, record.prompt_length - 1 : -1]
        logits: Floats = self._model.logits(hidden).numpy()
        return logits


def write_untrained(source: Path, destination: Path, seed: int) -> None:
    """Write a copy of `source` with random weights: a student that knows nothing.

    Raises:
        ModelError: `source` cannot be read, or is not a Llama.
        StoreError: `destination` cannot be written.
    """
    torch.manual_seed(seed)
    write_student(source, Llama(read_student(source).shape).state_dict(), destination)
