"""One round of distillation, from a replay buffer to a published version, or to a reason why not.

The entry of the process that learns. It trains the student that drafts now on the answers since,
older ones and base material, writes the file, has it loaded as it will be used, and lets the gate
decide. Nothing is published by any other way: an error, a kill at any moment or a refusal leaves
the versions as they were, and the next round goes on from the checkpoint.

Refuses to know when a round runs, and which engine loads students.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time, time

import torch
from torch import Tensor

from datastores.errors import StoreError
from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from datastores.storage.files import WorkLock
from engines.distillation.gate import Quality, measure, refusal, verdict
from engines.distillation.holdout import split
from engines.distillation.trainer import Trainer, TrainingSettings, mean_acceptance, plan
from engines.distillation.versions import STUDENT_FILE, Attempt, Version, Versions
from engines.distillation.weights import read_student, write_student
from engines.drafters.student import Student
from engines.fingerprint import fingerprint

MIN_NEW = 20
"""New answers that a round needs."""
MAX_NEW = 1000
"""New answers that a round learns from; the latest."""
MAX_BASE_HELD_OUT = 160
"""Answers that measure what was forgotten."""
SAVE_SECONDS = 20.0
"""Training that a kill may cost."""
SHARES = (1.0, 0.85, 0.7)
"""How far what is published is from the original weights towards the trained ones: the first of
these that passes the gate. On this line, what was learned grows faster than what is forgotten
(Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"); and it starts at the original
student, or every version would spend a little more of what may be forgotten."""
LAST_SHARE = 0.5
"""How far from the version that drafts, tried last: a smaller step than the whole round's."""
CHECKPOINT, LOCK = "round.safetensors", "lock"

LoadStudent = Callable[[Path], Student]
"""Load a file as it will draft. Raises InputError for another vocabulary, ModelError for a file
that does not run."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of training: `done` of `steps`, with its mean loss."""

    done: int
    steps: int
    loss: float


@dataclass(frozen=True, slots=True)
class RoundResult:
    """How a round ended.

    Attributes:
        version: what was published; None if nothing was.
        reason: why nothing was; empty otherwise.
        seconds: of CPU, in this process.
    """

    version: Version | None
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a round learns from and is measured by.

    Attributes:
        new, older, base: learned from. held_out, base_held_out: measured with.
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


def run_round(
    buffer: ReplayBuffer,
    student: Path,
    folder: Path,
    load: LoadStudent,
    *,
    base: Sequence[ReplayRecord] = (),
    settings: TrainingSettings | None = None,
    threads: int = 1,
) -> Generator[TrainingStep | RoundResult]:
    """Train one version of `student`; the last item is the result.

    A caller may pause between two items for as long as it likes.

    Args:
        student: the original one's file.
        folder: of its versions, for this target.
        base: answers that the original student drafts well, as records: against forgetting.

    Raises:
        SpecchatError: the round failed; nothing was published. One line says why.
    """
    started = process_time()
    torch.set_num_threads(threads)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = WorkLock(folder / LOCK)
    if not lock.acquire():
        raise StoreError(f"another process is training the student in {folder}")
    try:
        current = _Round(buffer, student, Versions(folder), load, base, settings)
        version, reason = yield from current.run()
    finally:
        lock.release()
    yield RoundResult(version, reason, process_time() - started)


class _Round:
    """The parts of one round."""

    def __init__(
        self,
        buffer: ReplayBuffer,
        student: Path,
        versions: Versions,
        load: LoadStudent,
        base: Sequence[ReplayRecord],
        settings: TrainingSettings | None,
    ) -> None:
        self._buffer = buffer
        self._original = student
        self._versions = versions
        self._load = load
        self._base = base
        self._settings = settings or TrainingSettings()
        self._parent = versions.current_version()
        self._start = versions.file(self._parent.number) if self._parent else student
        hidden, grown = read_student(student).shape.hidden, self._settings.grown
        self._frozen, self._hidden = (hidden if grown else 0), hidden + grown

    def run(self) -> Generator[TrainingStep, None, tuple[Version | None, str]]:
        """Train, measure, publish; returns the version, or why there is none."""
        lesson = self._lesson()
        if lesson.arrived < MIN_NEW:
            return (
                None,
                f"{lesson.arrived} new answers are too few to learn from: it takes {MIN_NEW}",
            )
        if reason := refusal(lesson.held_out):
            self._note(lesson, None, reason)
            return None, reason
        # First of all: the student must still be one for this target, and load.
        before = self._measure(self._start, lesson)
        trainer = yield from self._train(lesson)
        version, reason = self._publish(trainer, lesson, before)
        (self._versions.folder / CHECKPOINT).unlink(missing_ok=True)
        self._note(lesson, version, reason)
        return version, reason

    def _note(self, lesson: Lesson, version: Version | None, reason: str) -> None:
        """Remember the attempt: the next one waits for new answers."""
        number = version.number if version else 0
        self._versions.note(
            Attempt(time(), self._buffer.identity, lesson.last_record, number, reason)
        )

    def _publish(
        self, trainer: Trainer, lesson: Lesson, before: Quality
    ) -> tuple[Version | None, str]:
        """Publish the first candidate that passes the gate; else the reason of the first."""
        original = before.base if not self._parent else self._original_base(lesson)
        partial, reasons = self._versions.partial(), []
        path = partial / STUDENT_FILE
        try:
            for weights in self._candidates(trainer.model.state_dict()):
                write_student(self._original, weights, path)
                after = self._measure(path, lesson)
                reasons.append(verdict(before, after, original))
                if not reasons[-1]:
                    version = self._version(path, trainer.steps, lesson, before, after)
                    self._versions.publish(partial, version)
                    return version, ""
        finally:
            self._versions.discard(partial)
        return None, reasons[0]

    def _candidates(self, trained: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor]]:
        """What may be published, the most learned first."""
        origins = [(self._original, share) for share in SHARES] + [(self._start, LAST_SHARE)]
        for origin, share in origins:
            first = read_student(origin).grown(self._hidden).weights
            yield {name: torch.lerp(first[name], trained[name], share) for name in first}

    def _lesson(self) -> Lesson:
        """Divide the buffer's records, the latest of each kind first come first served."""
        last_removal = self._buffer.last_removal
        records = list(self._buffer.records())
        sides = split(records)
        seen = self._seen()
        new = [record for record in sides.learned if record.id > seen][-MAX_NEW:]
        known = [record for record in sides.learned if record.id <= seen]
        base = split(self._base)
        return Lesson(
            new=new,
            older=known,
            base=base.learned,
            held_out=sides.held_out,
            base_held_out=base.held_out[:MAX_BASE_HELD_OUT],
            arrived=sum(record.id > self._attempted() for record in records),
            last_record=records[-1].id if records else 0,
            last_removal=last_removal,
        )

    def _seen(self) -> int:
        """Id of the last record of the buffer that the current version learned from."""
        parent = self._parent
        return parent.last_record if parent and parent.buffer == self._buffer.identity else 0

    def _attempted(self) -> int:
        """Id of the last record of the buffer that any round has seen."""
        attempt = self._versions.last_attempt()
        known = attempt is not None and attempt.buffer == self._buffer.identity
        return attempt.last_record if attempt and known else 0

    def _train(self, lesson: Lesson) -> Generator[TrainingStep, None, Trainer]:
        batches = plan(lesson.new, lesson.older, lesson.base, self._settings)
        student = read_student(self._start).grown(self._hidden)
        trainer = Trainer(student, batches, self._settings, self._frozen)
        path = self._versions.folder / CHECKPOINT
        digest = trainer.digest(fingerprint(self._start))
        trainer.resume(path, digest)
        saved = monotonic()
        for loss in trainer.run():
            if monotonic() - saved > SAVE_SECONDS:
                trainer.save(path, digest)
                saved = monotonic()
            yield TrainingStep(trainer.step, trainer.steps, loss)
        return trainer

    def _measure(self, path: Path, lesson: Lesson) -> Quality:
        return measure(path, self._load(path), lesson.held_out, lesson.base_held_out)

    def _original_base(self, lesson: Lesson) -> float | None:
        """α of the original student on its own texts: what may be lost is counted from there, or
        every version might lose a little."""
        if not lesson.base_held_out:
            return None
        return mean_acceptance(read_student(self._original).model(), lesson.base_held_out)

    def _version(
        self, path: Path, steps: int, lesson: Lesson, before: Quality, after: Quality
    ) -> Version:
        parent = self._parent
        figures = {
            "steps": float(steps),
            "acceptance_before": before.acceptance,
            "acceptance": after.acceptance,
            "tokens_per_call_before": before.tokens_per_call,
            "tokens_per_call": after.tokens_per_call,
            "held_out": float(len(lesson.held_out)),
            "new": float(len(lesson.new)),
            "older": float(len(lesson.older)),
            "base": float(len(lesson.base)),
        }
        if after.base is not None and before.base is not None:
            figures |= {"base_acceptance_before": before.base, "base_acceptance": after.base}
        return Version(
            number=self._versions.next_number(),
            created=time(),
            fingerprint=fingerprint(path),
            origin=parent.origin if parent else fingerprint(self._original),
            parent=parent.number if parent else 0,
            buffer=self._buffer.identity,
            last_record=lesson.last_record,
            last_removal=lesson.last_removal,
            figures=figures,
        )
