"""One round of distillation, from a replay buffer to a published version, or a reason why not.

This is the entry point of the training process. It trains the current draft model or head on new
answers, older ones and base material, writes the file, has it loaded as it will be used, and lets
the gate decide. After an error, a kill at any moment or a rejection, the versions are as before,
and the next round resumes from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time, time

import torch

from datastores.errors import StoreError
from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from datastores.storage.files import WorkLock
from engines.distillation.gate import Quality, refusal, verdict
from engines.distillation.holdout import measuring, split
from engines.distillation.trainee import Trainee, TrainingSplit
from engines.distillation.trainer import Trainer, TrainingSettings
from engines.distillation.versions import Attempt, Version, Versions
from engines.fingerprint import fingerprint

MIN_NEW = 20
"""New answers that a round needs."""
MAX_NEW = 1000
"""Latest new answers that a round learns from."""
MAX_BASE_HELD_OUT = 160
"""Most answers that measure forgetting."""
SAVE_SECONDS = 20.0
"""Interval of checkpoints: training that a kill may cost."""
LOCK = "lock"
SAMPLER = ("temperature", "top_k", "top_p", "min_p")
"""The sampling settings that acceptance depends on."""
PARENT_GONE = "the version that it was trained from is no longer in use"


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of training: `done` of `steps`, with its mean loss."""

    done: int
    steps: int
    loss: float


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round.

    Attributes:
        version: the published version; None if there is none.
        reason: why nothing was published; empty otherwise.
        seconds: CPU time of this process.
    """

    version: Version | None
    reason: str
    seconds: float


def run_round(
    buffer: ReplayBuffer,
    trainee: Trainee,
    folder: Path,
    *,
    base: Sequence[ReplayRecord] = (),
    settings: TrainingSettings | None = None,
    threads: int = 1,
) -> Generator[TrainingStep | RoundResult]:
    """Train one version of `trainee`; the last item is the result.

    A caller may pause between two items for any time.

    Args:
        folder: the folder of its versions for this target.
        base: answers that the original draft model drafts well, against forgetting.

    Raises:
        SpecchatError: the round failed; nothing was published.
    """
    started = process_time()
    torch.set_num_threads(threads)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = WorkLock(folder / LOCK)
    if not lock.acquire():
        raise StoreError(f"another process is training what drafts from {folder}")
    try:
        versions = Versions(folder, trainee.weights_file)
        current = _Round(buffer, trainee, versions, base, settings or TrainingSettings())
        version, reason = yield from current.run()
    finally:
        lock.release()
    yield RoundResult(version, reason, process_time() - started)


def _parent(versions: Versions, buffer: ReplayBuffer) -> Version | None:
    """The version to train from; None for the original draft model.

    A version from a lost buffer may have learned chats that were deleted since. Without the buffer
    that cannot be checked, neither of it nor of its successors.

    Raises:
        StoreError: the current version is damaged.
    """
    current = versions.current_version()
    return current if current is not None and current.buffer == buffer.identity else None


class _Round:
    """The state of one round."""

    def __init__(
        self,
        buffer: ReplayBuffer,
        trainee: Trainee,
        versions: Versions,
        base: Sequence[ReplayRecord],
        settings: TrainingSettings,
    ) -> None:
        self._buffer = buffer
        self._trainee = trainee
        self._versions = versions
        self._base = base
        self._settings = settings
        # Read before the parent, so that a removal in between discards what is made of it.
        self._last_removal = buffer.last_removal
        self._parent_identity = versions.current_identity
        self._parent = _parent(versions, buffer)
        # Ids of the last records that the current version learned from and that any round has seen.
        self._seen = self._parent.last_record if self._parent else 0
        last = versions.last_attempt()
        known = last is not None and last.buffer == buffer.identity
        self._attempted = last.last_record if last and known else 0
        self._fruitless = last.fruitless if last and known else 0
        self._start = versions.file(self._parent.number) if self._parent else None

    def run(self) -> Generator[TrainingStep, None, tuple[Version | None, str]]:
        """Train, measure, publish; returns the version, or why there is none."""
        split = self._split()
        damaged = len(self._buffer.damaged)
        left_out = f"; {damaged} damaged ones were left out" if damaged else ""
        if split.arrived < MIN_NEW:
            few = f"{split.arrived} new answers are too few to learn from: {MIN_NEW} are needed"
            return None, few + left_out
        if reason := refusal(split.held_out):
            self._note(split, None, reason + left_out, self._fruitless)
            return None, reason + left_out
        # Measured first: the current version must still be for this target, and load.
        before = self._trainee.measure(self._start, split)
        trainer = yield from self._train(split)
        version, reason = self._publish(trainer, split, before)
        self._checkpoint(split).unlink(missing_ok=True)
        if reason != PARENT_GONE:  # else the next round learns the same again
            self._note(split, version, reason, 0 if version else self._fruitless + 1)
        return version, reason

    def _note(
        self, split: TrainingSplit, version: Version | None, reason: str, fruitless: int
    ) -> None:
        """Record the attempt, so that the next one waits for new answers."""
        number, buffer = version.number if version else 0, self._buffer.identity
        self._versions.note(Attempt(time(), buffer, split.last_record, number, reason, fruitless))

    def _publish(
        self, trainer: Trainer, split: TrainingSplit, before: Quality
    ) -> tuple[Version | None, str]:
        """Publish the first candidate that passes the gate, or return the first one's reason."""
        original = before.base if not self._parent else self._trainee.original_base(split)
        partial, reasons = self._versions.partial(), []
        path = partial / self._trainee.weights_file
        try:
            for weights in self._trainee.candidates(self._start, trainer.model.state_dict()):
                self._trainee.write(weights, path)
                after = self._trainee.measure(path, split)
                reasons.append(verdict(before, after, original))
                if not reasons[-1]:
                    if self._versions.current_identity != self._parent_identity:
                        return None, PARENT_GONE
                    version = self._version(path, trainer.steps, split, before, after)
                    self._versions.publish(partial, version)
                    return version, ""
        finally:
            self._versions.discard(partial)
        return None, reasons[0]

    def _split(self) -> TrainingSplit:
        """Divide the buffer's records; of new ones, the latest are kept."""
        records = list(self._trainee.records(self._buffer))
        sides = split(records)
        new = [record for record in sides.learned if record.id > self._seen][-MAX_NEW:]
        known = [record for record in sides.learned if record.id <= self._seen]
        held_out = measuring(sides.held_out)
        base = split(self._base)
        return TrainingSplit(
            new=new,
            older=known,
            base=base.learned,
            held_out=held_out,
            base_held_out=base.held_out[:MAX_BASE_HELD_OUT] or self._known(held_out),
            arrived=sum(record.id > self._attempted for record in records),
            last_record=records[-1].id if records else 0,
            last_removal=self._last_removal,
        )

    def _known(self, held_out: Sequence[ReplayRecord]) -> Sequence[ReplayRecord]:
        """Those of `held_out` that the current version was measured with, which show forgetting
        without base material; empty if they are too few."""
        older = [record for record in held_out if record.id <= self._seen]
        return () if refusal(older) else older

    def _train(self, split: TrainingSplit) -> Generator[TrainingStep, None, Trainer]:
        trainer = self._trainee.trainer(self._start, split, self._settings)
        path = self._checkpoint(split)
        digest = trainer.digest(fingerprint(self._start) if self._start else self._trainee.origin)
        trainer.resume(path, digest)
        saved = monotonic()
        for loss in trainer.run():
            if monotonic() - saved > SAVE_SECONDS:
                trainer.save(path, digest)
                saved = monotonic()
            yield TrainingStep(trainer.step, trainer.steps, loss)
        return trainer

    def _checkpoint(self, split: TrainingSplit) -> Path:
        return self._versions.checkpoint(self._buffer.identity, split.last_removal)

    def _version(
        self, path: Path, steps: int, split: TrainingSplit, before: Quality, after: Quality
    ) -> Version:
        parent = self._parent
        figures = {
            "steps": float(steps),
            "acceptance_before": before.acceptance.value,
            "acceptance": after.acceptance.value,
            "tokens_per_step_before": before.tokens_per_step.value,
            "tokens_per_step": after.tokens_per_step.value,
            "held_out": float(len(split.held_out)),
            "new": float(len(split.new)),
            "older": float(len(split.older)),
            "base": float(len(split.base)),
            **{name: float(getattr(self._trainee.sampling, name)) for name in SAMPLER},
        }
        if after.base is not None and before.base is not None:
            for name, base in (("_before", before.base), ("", after.base)):
                figures[f"base_acceptance{name}"] = base.acceptance
                figures[f"base_agreement{name}"] = base.agreement
        return Version(
            number=self._versions.next_number(),
            created=time(),
            fingerprint=fingerprint(path),
            origin=parent.origin if parent else self._trainee.origin,
            parent=parent.number if parent else 0,
            buffer=self._buffer.identity,
            last_record=split.last_record,
            last_removal=split.last_removal,
            figures=figures,
        )
