"""The student as a round teaches it: a copy of its GGUF file with other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.gate import Quality, measure_student
from engines.distillation.losses import LOSSES
from engines.distillation.pupil import Lesson
from engines.distillation.trainer import (
    Trainer,
    TrainingSettings,
    freeze,
    mean_acceptance,
    plan,
    student_backward,
)
from engines.distillation.versions import STUDENT_FILE
from engines.distillation.weights import read_student, write_student
from engines.drafters.student import Student
from engines.fingerprint import fingerprint

SHARES = (1.0, 0.85, 0.7)
"""How far what is published is from the original weights towards the trained ones: the first of
these that passes the gate. On this line, what was learned grows faster than what is forgotten
(Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"); and it starts at the original
student, or every version would spend a little more of what may be forgotten."""
LAST_SHARE = 0.5
"""How far from the version that drafts, tried last: a smaller step than the whole round's."""

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

    def original_base(self, lesson: Lesson) -> float | None:
        if not lesson.base_held_out:
            return None
        return mean_acceptance(read_student(self._original).model(), lesson.base_held_out)

    def trainer(self, version: Path | None, lesson: Lesson, settings: TrainingSettings) -> Trainer:
        student = read_student(version or self._original)
        first = read_student(self._original).shape.hidden
        model = student.grown(first + settings.grown).model()
        if settings.grown:
            freeze(model, first)
        backward = partial(student_backward, model, LOSSES[settings.loss])
        batches = plan(lesson.new, lesson.older, lesson.base, settings)
        return Trainer(model, backward, batches, settings)

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        origins = [(self._original, share) for share in SHARES]
        origins.append((version or self._original, LAST_SHARE))
        hidden = len(trained["layers.0.gate_proj"])
        for origin, share in origins:
            start = read_student(origin).grown(hidden).weights
            yield {name: torch.lerp(start[name], trained[name], share) for name in start}

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        write_student(self._original, weights, path)
