"""What a round teaches: the protocol of the draft model and of the draft head.

Owns what a round asks of either, and the answers it gives them. Refuses to know when a round runs,
and what becomes of a version.
"""

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

STEPS = (1.0, 0.75, 0.5)
"""How far what is published is from the version that drafts towards the trained weights: the first
of these that passes the gate. Halfway, new and known questions are often drafted better, repeated
ones less well: of a round's 431, 132 and 70, by how often both prefer the same token, .7436, .8734
and .8862 before it, .7484, .8716 and .9241 halfway, .7500, .8718 and .9422 at three quarters, and
.7502, .8703 and .9504 after it."""


@dataclass(frozen=True, slots=True)
class TrainingSplit:
    """What a round learns from and is measured by.

    Attributes:
        new, older, base: learned from.
        held_out: measured with. base_held_out: likewise, what was known before.
        arrived: records of the buffer that no round has seen, held-out ones included.
        last_record: id of the latest record seen. last_removal: of the buffer then.
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
    """A `version` is the file of the one that drafts now; None: none does, or the original."""

    @property
    def weights_file(self) -> str:
        """Name of the file of a version."""
        ...

    @property
    def origin(self) -> str:
        """Fingerprint of what the first version is made from."""
        ...

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        """The records of `buffer` that it can learn from, oldest first."""
        ...

    def measure(self, version: Path | None, split: TrainingSplit) -> Quality:
        """Measure a version, loaded as it will draft.

        Raises:
            InputError: it is not one for this target.
            ModelError: it does not load.
        """
        ...

    def original_base(self, split: TrainingSplit) -> Retention | None:
        """What the original is worth on its own texts: what may be lost is counted from there, or
        every version might lose a little. None if it has none."""
        ...

    def trainer(
        self, version: Path | None, split: TrainingSplit, settings: TrainingSettings
    ) -> Trainer:
        """Begin to train from `version`."""
        ...

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        """What may be published of weights trained from `version`, the most learned first."""
        ...

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        """Write the file of a version; an error leaves none.

        Raises:
            StoreError: it cannot be written.
        """
        ...
