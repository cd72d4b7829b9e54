"""`specchat bench distill`: what a draft model learns online from the answers of its target.

A stream of chats, topic after topic, is answered once. Each row then has its own student, which
meets the same answers in the same order: first it is measured on an answer, then the answer goes
into its replay buffer, and after every few answers a round of distillation runs, as the product
runs it (`engines.distillation.round`): held-out questions, gate and versions included. New and
repeated questions are counted apart.

Three figures that are often confused stand beside each other (`Figures`). Probabilities are
compared at the person's temperature over the target's 64 likeliest tokens and all others; top-k,
top-p and min-p are left out of α, which is the papers', and are in force in live acceptance.

Owns the stream and the measuring. Refuses to know options and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
from numpy.typing import NDArray

from app.bench.decode import TimedAnswer, answer_chat
from app.bench.workloads import Workload
from app.engine.engine import Engine
from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.forced import force
from engines.distillation.gate import tree_calls
from engines.distillation.holdout import split
from engines.distillation.reader import StudentReader
from engines.distillation.round import RoundResult, run_round
from engines.distillation.trainer import TrainingSettings
from engines.distillation.versions import Versions
from engines.drafters.student import Student
from engines.recorded_replay import ReplayCounts
from engines.sampler import Sampling, make_sampler
from engines.target import Floats

WINDOW = 50
"""Answers over which α is averaged, as in the paper."""
RECOVERED = 0.9
"""Share of a topic's last level at which the student has recovered from the shift."""

LoadStudent = Callable[[Path], Student]
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One answer of the target.

    Attributes:
        topic: name of the workload it came from.
        repeated: whether the stream asked its question before.
        record: as the product keeps it: probabilities at temperature 1, here at every position.
        tempered: top tokens and log-probabilities at the person's temperature, the others' mass
            last; None at temperature 0.
    """

    topic: str
    repeated: bool
    record: ReplayRecord
    tempered: tuple[NDArray[np.int32], Logs] | None

    @property
    def answer(self) -> list[int]:
        """Its tokens, without the prompt's."""
        tokens: list[int] = self.record.tokens[self.record.prompt_length :].tolist()
        return tokens


def answers(
    engine: Engine, topics: Mapping[str, Sequence[Workload]], sampling: Sampling
) -> Iterator[StreamedAnswer]:
    """Answer all chats, topic after topic."""
    asked: set[str] = set()
    for number, (topic, chat) in enumerate(
        (name, one) for name, of in topics.items() for one in of
    ):
        given = answer_chat(engine, chat, (), sampling)
        for question, answer in zip(chat.questions, given, strict=True):
            key = question_key(question)
            if answer.prompt and answer.tokens:
                made = _streamed(engine, answer, number + 1, question, chat.questions[0], sampling)
                yield StreamedAnswer(topic, key in asked, *made)
            asked.add(key)


def _streamed(
    engine: Engine, answer: TimedAnswer, chat: int, question: str, topic: str, sampling: Sampling
) -> tuple[ReplayRecord, tuple[NDArray[np.int32], Logs] | None]:
    """The record of an answer, and what `StreamedAnswer.tempered` holds."""
    with engine.busy:
        forced = force(engine.target, answer.prompt, answer.tokens)
    tempered = None
    if sampling.temperature > 0:
        top, logprobs, rest = top_of(forced.logits / np.float32(sampling.temperature))
        tempered = (top, np.concatenate([logprobs, rest[:, None]], axis=1).astype(np.float64))
    return forced.record(chat, question, topic), tempered


@dataclass(slots=True)
class Figures:
    """How a student did on some answers.

    Attributes:
        positions: tokens of the answers. answers: number of them.
        alpha: sum over positions of Σ min(p, q), the papers' α.
        live: positions where the student draws the target's token with the shared noise: what a
            chain's first token is accepted for by specchat's rule.
        tree: calls and tokens of the whole tree, replayed.
    """

    positions: int = 0
    answers: int = 0
    alpha: float = 0.0
    live: int = 0
    tree: ReplayCounts = field(default_factory=ReplayCounts)

    def add(self, other: Figures) -> None:
        """Add the figures of other answers."""
        self.positions += other.positions
        self.answers += other.answers
        self.alpha += other.alpha
        self.live += other.live
        self.tree.calls += other.tree.calls
        self.tree.tokens += other.tree.tokens

    def summary(self) -> dict[str, object]:
        """As in `--json`; null where there were none."""
        count = self.positions
        return {
            "answers": self.answers,
            "alpha": self.alpha / count if count else None,
            "live_acceptance": self.live / count if count else None,
            "tokens_per_call": self.tree.tokens_per_call or None,
        }


def measure(reader: StudentReader, answer: StreamedAnswer, sampling: Sampling) -> Figures:
    """α and live acceptance of one answer."""
    logits = reader.answer_logits(answer.record)
    draw, tokens = make_sampler(sampling), answer.record.tokens.tolist()
    start = answer.record.prompt_length
    live = sum(
        draw(row, offset, tokens[: start + offset]) == token
        for offset, (row, token) in enumerate(zip(logits, answer.answer, strict=True))
    )
    return Figures(len(logits), 1, float(alphas(logits, answer, sampling.temperature).sum()), live)


def alphas(logits: Floats, answer: StreamedAnswer, temperature: float) -> Logs:
    """Σ min(p, q) at each position, [answer]. At temperature 0: whether both prefer one token."""
    if answer.tempered is None:
        same: Logs = (logits.argmax(axis=1) == np.array(answer.answer)).astype(np.float64)
        return same
    scaled = logits.astype(np.float64) / temperature
    top, log_p = answer.tempered
    peak = scaled.max(axis=1, keepdims=True)
    total = np.exp(scaled - peak).sum(axis=1, keepdims=True)
    q = np.exp(np.take_along_axis(scaled, top.astype(np.intp), 1) - peak) / total
    rest = np.maximum(1.0 - q.sum(axis=1, keepdims=True), 0.0)
    result: Logs = np.minimum(np.exp(log_p), np.concatenate([q, rest], axis=1)).sum(axis=1)
    return result


@dataclass(slots=True)
class DistillRow:
    """One student on the stream.

    Attributes:
        curve: α of each answer, as it was met.
        new, repeated: figures of the answers as they were met; `late_new`, `late_repeated`: of
            the second half of the stream alone.
        topics: α of each answer by topic.
        base_before, base_after: figures on what the original student knows.
        versions: published. refused: why the others were not.
        seconds: of CPU, of all rounds.
    """

    name: str
    curve: list[float] = field(default_factory=list)
    new: Figures = field(default_factory=Figures)
    repeated: Figures = field(default_factory=Figures)
    late_new: Figures = field(default_factory=Figures)
    late_repeated: Figures = field(default_factory=Figures)
    topics: dict[str, list[float]] = field(default_factory=dict)
    base_before: Figures = field(default_factory=Figures)
    base_after: Figures = field(default_factory=Figures)
    versions: int = 0
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> dict[str, object]:
        """As in `--json`."""
        return {
            "student": self.name,
            "new": self.new.summary(),
            "repeated": self.repeated.summary(),
            "late_new": self.late_new.summary(),
            "late_repeated": self.late_repeated.summary(),
            "base_before": self.base_before.summary(),
            "base_after": self.base_after.summary(),
            "topics": {name: _topic(values) for name, values in self.topics.items()},
            "versions": self.versions,
            "refused": self.refused,
            "cpu_seconds": round(self.seconds, 1),
            "curve": [round(value, 4) for value in moving_mean(self.curve)],
        }


def _topic(values: Sequence[float]) -> dict[str, object]:
    """The first and the last level, and how many answers it took to recover."""
    means = moving_mean(values)
    last = means[-1]
    return {
        "answers": len(values),
        "first": fmean(values[:WINDOW]),
        "last": last,
        "recovered_after": next(
            number for number, mean in enumerate(means, 1) if mean >= RECOVERED * last
        ),
    }


def moving_mean(values: Sequence[float]) -> list[float]:
    """Means over the last `WINDOW` values, at each of them."""
    starts = (max(0, end - WINDOW) for end in range(1, len(values) + 1))
    return [fmean(values[start:end]) for end, start in enumerate(starts, 1)]


class Classroom:
    """What all rows of a benchmark share.

    Attributes:
        stream: the answers, in order.
        base: answers that the original student knows: half for learning, half for measuring.
        every: answers between rounds.
    """

    def __init__(
        self,
        engine: Engine,
        sampling: Sampling,
        student: Path,
        load: LoadStudent,
        stream: Sequence[StreamedAnswer],
        base: Sequence[StreamedAnswer],
        every: int,
    ) -> None:
        self._engine = engine
        self._sampling = sampling
        self._student = student
        self._load = load
        self.stream = stream
        self.base = base
        self.every = every

    def static(self) -> DistillRow:
        """The student as it is."""
        row = DistillRow("static")
        self._pass_all(row, self._student)
        return row

    def online(self, settings: TrainingSettings) -> Iterator[DistillRow]:
        """The student learns on the way; yields the row after each part of the stream."""
        row = DistillRow(f"online, {settings.loss}")
        with self._school() as (buffer, versions):
            for part in self._parts():
                self._pass(row, part, self._current(versions))
                self._learn(row, part, buffer, versions, settings)
                yield row
            self._measure_base(row, self._current(versions))

    def offline(
        self, share: float, lessons: Sequence[StreamedAnswer], settings: TrainingSettings
    ) -> DistillRow:
        """The student learns from a share of other answers first, then meets the stream."""
        row = DistillRow(f"offline, {share:.0%}")
        with self._school() as (buffer, versions):
            self._learn(row, lessons[: round(share * len(lessons))], buffer, versions, settings)
            self._pass_all(row, self._current(versions))
        return row

    @contextmanager
    def _school(self) -> Iterator[tuple[ReplayBuffer, Versions]]:
        """An empty buffer and no versions, removed at the end of the block."""
        target = self._engine.target
        with TemporaryDirectory(prefix="specchat-bench-") as folder:
            path = Path(folder)
            size = target.vocabulary_size
            with closing(ReplayBuffer.open(path / "replay.db", target.fingerprint, size)) as buffer:
                yield buffer, Versions(path / "versions")

    def _current(self, versions: Versions) -> Path:
        number = versions.current
        return versions.file(number) if number else self._student

    def _parts(self) -> Iterator[Sequence[StreamedAnswer]]:
        """What is met between two rounds."""
        for first in range(0, len(self.stream), self.every):
            yield self.stream[first : first + self.every]

    def _pass_all(self, row: DistillRow, path: Path) -> None:
        """Meet the whole stream with one student; in parts, since drafters begin afresh in each."""
        for part in self._parts():
            self._pass(row, part, path)
        self._measure_base(row, path)

    def _pass(self, row: DistillRow, part: Sequence[StreamedAnswer], path: Path) -> None:
        """Measure `part` of the stream with the student in `path`."""
        reader, late = StudentReader(path), len(self.stream) // 2
        trees = tree_calls(self._load(path), [answer.record for answer in part])
        for answer, tree in zip(part, trees, strict=True):
            figures = measure(reader, answer, self._sampling)
            figures.tree = tree
            level = figures.alpha / figures.positions
            is_late = len(row.curve) >= late
            row.curve.append(level)
            row.topics.setdefault(answer.topic, []).append(level)
            (row.repeated if answer.repeated else row.new).add(figures)
            if is_late:
                (row.late_repeated if answer.repeated else row.late_new).add(figures)

    def _learn(
        self,
        row: DistillRow,
        part: Sequence[StreamedAnswer],
        buffer: ReplayBuffer,
        versions: Versions,
        settings: TrainingSettings,
    ) -> None:
        """Put `part` into the buffer and run a round."""
        started = process_time()
        for answer in part:
            buffer.add(f"chat:{answer.record.chat}", answer.record)
        base = [answer.record for answer in self.base]
        for item in run_round(
            buffer, self._student, versions.folder, self._load, base=base, settings=settings
        ):
            if isinstance(item, RoundResult):
                row.versions += item.version is not None
                row.refused += [item.reason] if item.reason else []
        row.seconds += process_time() - started

    def _measure_base(self, row: DistillRow, path: Path) -> None:
        """What the student still knows of what the original one knew."""
        held_out = {id(record) for record in split([one.record for one in self.base]).held_out}
        kept = [answer for answer in self.base if id(answer.record) in held_out]
        for figures, file in ((row.base_before, self._student), (row.base_after, path)):
            reader = StudentReader(file)
            for answer in kept:
                figures.add(measure(reader, answer, self._sampling))
