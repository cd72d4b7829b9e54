"""What a round trains: the protocol of the draft model and of the draft head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.gate import Quality, Retention
from engines.distillation.trainer import Trainer, TrainingSettings
from engines.sampler import Sampling

STEPS = (1.0, 0.75, 0.5)
"""Shares of the way from the current version to the trained weights; the first that passes the gate
is published. Halfway, new and known questions are often drafted better, repeated ones less well
(agreement on 431 new, 132 known and 70 repeated questions: .7436, .8734 and .8862 before the round,
.7484, .8716 and .9241 halfway, .7502, .8703 and .9504 after it)."""


@dataclass(frozen=True, slots=True)
class TrainingSplit:
    """The records that a round learns from and measures with.

    Attributes:
        new, older, base: learned from.
        held_out: measured with.
        base_held_out: measured with, known texts.
        arrived: number of records that no round has seen, including held-out ones.
        last_record: id of the latest record seen.
        last_removal: the buffer's, when the round began.
    """

    new: Sequence[ReplayRecord]
    older: Sequence[ReplayRecord]
    base: Sequence[ReplayRecord]
    held_out: Sequence[ReplayRecord]
    base_held_out: Sequence[ReplayRecord]
    arrived: int
    last_record: int
    last_removal: int


class Trainee(Protocol):
    """A model that learns. A `version` is the current one's file; None for none or the original."""

    @property
    def weights_file(self) -> str:
        """File name of a version's weights."""

    @property
    def origin(self) -> str:
        """Fingerprint of the model that the first version is made from."""

    @property
    def sampling(self) -> Sampling:
        """The sampling settings at which its acceptance is measured: the person's."""

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        """The records of `buffer` that it can learn from, oldest first."""

    def measure(self, version: Path | None, split: TrainingSplit) -> Quality:
        """Measure a version, loaded as it will draft.

        Raises:
            InputError: the version is not for this target.
            ModelError: it does not load.
        """

    def original_base(self, split: TrainingSplit) -> Retention | None:
        """The original's quality on its known texts, None if it has none. Losses count from there,
        or every version might lose a little more."""

    def trainer(
        self, version: Path | None, split: TrainingSplit, settings: TrainingSettings
    ) -> Trainer:
        """Start training from `version`."""

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        """Weights that may be published after training from `version`, the most trained first."""

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        """Write the file of a version; an error leaves none.

        Raises:
            StoreError: the file cannot be written.
        """
