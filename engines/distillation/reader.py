"""A student's logits over whole answers, for those who measure it without knowing torch."""

from __future__ import annotations

from pathlib import Path

import torch

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.weights import read_student
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
