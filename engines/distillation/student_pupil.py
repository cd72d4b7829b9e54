"""The student as a round teaches it: a copy of its GGUF file with other weights.

Against forgetting, texts that the original student knows are learned beside the new answers; from
them it learns its own probabilities, not the target's. With the target's, it memorised these texts
and did worse on all others that it had known, the more so the more of them there were
(`TrainingSettings` has the figures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord, top_of
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.gate import Quality, Retention, measure_retention, measure_student
from engines.distillation.losses import LOSSES
from engines.distillation.pupil import STEPS, Lesson
from engines.distillation.reader import StudentReader
from engines.distillation.trainer import (
    Trainer,
    TrainingSettings,
    freeze,
    plan,
    student_backward,
)
from engines.distillation.versions import STUDENT_FILE
from engines.distillation.weights import read_student, write_student
from engines.drafters.student import Student
from engines.fingerprint import fingerprint

SHARES = (0.85, 0.7)
"""How far from the original weights, tried after `STEPS`. On this line, what was learned grows
faster than what is forgotten (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"); and
it starts at the original student, or every version would spend a little more of what may be
forgotten."""

LoadStudent = Callable[[Path], Student]
"""Load a file as it will draft. Raises InputError for another vocabulary, ModelError for a file
that does not run."""


class StudentPupil:
    """The student in the file `original`, which stays as it is."""

    weights_file = STUDENT_FILE

    def __init__(self, original: Path, load: LoadStudent) -> None:
        self._original = original
        self._load = load

    @cached_property
    def origin(self) -> str:
        return fingerprint(self._original)

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        return buffer.records()

    def measure(self, version: Path | None, lesson: Lesson) -> Quality:
        path = version or self._original
        return measure_student(path, self._load(path), lesson.held_out, lesson.base_held_out)

    def original_base(self, lesson: Lesson) -> Retention | None:
        return measure_retention(read_student(self._original).model(), lesson.base_held_out)

    def trainer(self, version: Path | None, lesson: Lesson, settings: TrainingSettings) -> Trainer:
        student = read_student(version or self._original)
        first = read_student(self._original).shape.hidden
        model = student.grown(first + settings.grown).model()
        if settings.grown:
            freeze(model, first)
        backward = partial(student_backward, model, LOSSES[settings.loss])
        base = self._as_original(lesson.base) if settings.base else ()
        batches = plan(lesson.new, lesson.older, base, settings)
        return Trainer(model, backward, batches, settings)

    def _as_original(self, records: Sequence[ReplayRecord]) -> list[ReplayRecord]:
        """`records` with the original student's probabilities in place of the target's."""
        reader, found = StudentReader(self._original), []
        for record in records:
            top, logprobs, rest = top_of(reader.answer_logits(record))
            own = replace(
                record,
                positions=np.arange(record.prompt_length, len(record.tokens), dtype=np.int32),
                top_tokens=top,
                top_logprobs=logprobs,
                rest_logprob=rest,
            )
            found.append(own)
        return found

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        origins = [(version or self._original, share) for share in STEPS]
        if version is not None:
            origins += [(self._original, share) for share in SHARES]
        hidden = len(trained["layers.0.gate_proj"])
        for origin, share in origins:
            start = read_student(origin).grown(hidden).weights
            yield {name: torch.lerp(start[name], trained[name], share) for name in start}

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        write_student(self._original, weights, path)
