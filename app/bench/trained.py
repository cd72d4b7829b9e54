"""What `bench distill` trains and measures: the draft model, the draft head, or the head in one
tree with the draft model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from app.models.gguf_files import model_parts
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.draft_model_trainee import DraftModelTrainee
from engines.distillation.gate import steps_with_draft_model, tree_steps
from engines.distillation.head_trainee import HeadTrainee
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.reader import DraftModelReader, HeadReader, Reader
from engines.distillation.trainee import Trainee
from engines.drafter_simulation import SimulationCounts
from engines.drafters.draft_model import DraftModel
from engines.drafters.head import HeadDrafter, read_head
from engines.sampler import Sampling
from engines.target import Target, Vocabulary

LoadDraftModel = Callable[[Path], DraftModel]


class Trained(Protocol):
    """A `version` is a file, or None for the original draft model, or no head."""

    @property
    def trainee(self) -> Trainee:
        """What a round of distillation trains."""
        ...

    def readers(self, version: Path | None) -> Sequence[Reader]:
        """One reader of answers, or none where nothing drafts."""
        ...

    def steps(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[SimulationCounts]:
        """The steps of each answer with the whole tree."""
        ...


class TrainedDraftModel:
    """The draft model in a file."""

    def __init__(self, original: Path, load: LoadDraftModel, sampling: Sampling) -> None:
        self.trainee = DraftModelTrainee(original, load, sampling)
        self._original = original
        self._load = load

    def readers(self, version: Path | None) -> Sequence[Reader]:
        return [DraftModelReader(version or self._original)]

    def steps(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[SimulationCounts]:
        return steps_with_draft_model(self._load(version or self._original), records)


class TrainedHead:
    """The head of the target in a GGUF file; in one tree with a draft model, if there is one."""

    def __init__(
        self,
        path: Path,
        target: Target,
        vocabulary: Vocabulary,
        sampling: Sampling,
        draft_model: DraftModel | None = None,
    ) -> None:
        self._matrix = OutputMatrix(*model_parts(path))
        self._stops = vocabulary.stops
        self._draft_model = draft_model
        self.trainee = HeadTrainee(self._matrix, target.fingerprint, self._stops, sampling)

    def readers(self, version: Path | None) -> Sequence[Reader]:
        return [HeadReader(version, self._matrix)] if version else []

    def steps(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[SimulationCounts]:
        heads = []
        if version:
            head = read_head(version, self.trainee.origin, self._matrix.width, self._matrix.size)
            heads.append(HeadDrafter(head, self._stops))
        if self._draft_model is None:
            return tree_steps(heads, records)
        return steps_with_draft_model(self._draft_model, records, heads)
