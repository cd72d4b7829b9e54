"""`python -m app.bench distill`: what a draft model learns online from the answers of its target.

A stream of chats, topic after topic, is answered once, every answer with a seed of its own. Each
row then has its own draft model or head, which meets the same answers in the same order: it is
measured on an answer before the answer goes into its replay buffer, and after every few answers a
round of distillation runs as in the product, with held-out questions, gate and versions
(`engines.distillation.round`). The buffer holds what the product records: the target's
probabilities where the row's own tree missed the token, and at a sample of the other positions. The
tree is simulated without chats and texts to draft from. New and repeated questions are counted
separately. After the stream, repeated questions are asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time

from app.bench.acceptance import Figures, StreamedAnswer, measure
from app.bench.decode import answer_chat
from app.bench.trained import Trained
from app.bench.workloads import Workload
from app.engine.engine import Engine
from datastores.replay_buffer.record import ReplayRecord, question_key, thinned
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.forced import force
from engines.distillation.holdout import split
from engines.distillation.round import RoundResult, run_round
from engines.distillation.trainer import TrainingSettings
from engines.distillation.versions import Versions
from engines.replay_recorder import is_kept
from engines.sampler import Sampling

WINDOW = 50
"""Answers over which α is averaged, as in the paper."""
SETS = ("new", "late_new", "repeated", "late_repeated", "again", "base_before", "base_after")
"""Sets of answers with figures of their own."""
RECOVERED = 0.9
"""Share of the level before a shift of topic at which the draft model has recovered."""


def answers(
    engine: Engine, topics: Mapping[str, Sequence[Workload]], sampling: Sampling
) -> Iterator[StreamedAnswer]:
    """Answer all chats, topic after topic."""
    asked: set[str] = set()
    chats = ((name, chat) for name, chats in topics.items() for chat in chats)
    for number, (topic, chat) in enumerate(chats, 1):
        # With one seed, a question would get the same answer whenever it is asked.
        drawn = replace(sampling, seed=sampling.seed + number)
        given = answer_chat(engine, chat, (), drawn)
        for question, answer in zip(chat.questions, given, strict=True):
            key = question_key(question)
            if answer.prompt and answer.tokens:
                with engine.busy:
                    forced = force(engine.target, answer.prompt, answer.tokens)
                record = forced.record(number, question, chat.questions[0])
                yield StreamedAnswer(topic, key in asked, drawn.seed, record)
            asked.add(key)


def as_recorded(record: ReplayRecord, missed: Collection[int]) -> ReplayRecord:
    """`record` with the probabilities that the product keeps (`engines.replay_recorder`).

    Args:
        missed: places in the answer of the tokens that no draft had.
    """
    start = record.prompt_length
    kept = [is_kept(place, place - start not in missed) for place in record.positions.tolist()]
    return thinned(record, kept)


def asked_again(topics: Mapping[str, Sequence[Workload]]) -> dict[str, list[Workload]]:
    """A chat for each question that `topics` ask more than once."""
    questions = {
        name: Counter(question for chat in chats for question in chat.questions)
        for name, chats in topics.items()
    }
    return {
        name: [Workload("", (question,)) for question, times in found.items() if times > 1]
        for name, found in questions.items()
    }


@dataclass(slots=True)
class DistillRow:
    """One draft model, or one for each topic, on the stream.

    Attributes:
        curve: α of each answer when it was met.
        figures: by name, of `new` and `repeated` questions when they were met, and `late_…` in the
            second half of the stream; of repeated ones `again` after the stream; and of what the
            original draft model knows, `base_before` and `base_after` the stream.
        met: number of answers by topic.
        topics: by topic, α of its answers to new questions, by their number among its answers.
        versions: number of published versions.
        refused: why rounds published none.
        learned: tokens of the answers in the replay buffer.
        seconds: CPU time of all rounds.
    """

    name: str
    curve: list[float] = field(default_factory=list)
    figures: dict[str, Figures] = field(default_factory=lambda: {name: Figures() for name in SETS})
    topics: dict[str, dict[int, float]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    refused: list[str] = field(default_factory=list)
    learned: int = 0
    seconds: float = 0.0

    def meet(self, answer: StreamedAnswer, figures: Figures, *, late: bool) -> None:
        """Count an answer of the stream."""
        level = figures.alpha()
        self.curve.append(level)
        self.met[answer.topic] += 1
        if not answer.repeated:
            self.topics.setdefault(answer.topic, {})[self.met[answer.topic]] = level
        name = "repeated" if answer.repeated else "new"
        self.figures[name].add(figures)
        if late:
            self.figures[f"late_{name}"].add(figures)

    def summary(self) -> dict[str, object]:
        """As in `--json`."""
        return {
            "draft_model": self.name,
            **{name: figures.summary() for name, figures in self.figures.items()},
            "shifts": shifts(self.topics),
            "versions": self.versions,
            "refused": self.refused,
            "learned_tokens": self.learned,
            "cpu_seconds": round(self.seconds, 1),
            "curve": [round(value, 4) for value in moving_mean(self.curve)],
        }


def shifts(topics: Mapping[str, Mapping[int, float]]) -> list[dict[str, object]]:
    """The effect of each shift of topic on α on new questions, in means over `WINDOW` of them.

    Args:
        topics: as in `DistillRow`, in order.

    Returns:
        The new topic; α `before` the shift, `first` and `last` after it; and the number of answers
        until it was `back` at `RECOVERED` of the level before, or None.
    """
    found: list[dict[str, object]] = []
    for (_, before), (topic, after) in pairwise(topics.items()):
        level, means = moving_mean([*before.values()])[-1], moving_mean([*after.values()])
        whole = list(zip(after, means, strict=True))[min(WINDOW, len(means)) - 1 :]
        back = next((number for number, mean in whole if mean >= RECOVERED * level), None)
        shift = {"topic": topic, "before": level, "first": whole[0][1], "last": means[-1]}
        found.append({**shift, "back": back})
    return found


def moving_mean(values: Sequence[float]) -> list[float]:
    """Means over the last `WINDOW` values, at each of them."""
    starts = (max(0, end - WINDOW) for end in range(1, len(values) + 1))
    return [fmean(values[start:end]) for end, start in enumerate(starts, 1)]


@dataclass(frozen=True, slots=True)
class Material:
    """The answers that all rows share.

    Attributes:
        again: to the questions that the stream repeats.
        base: known to the original draft model; most are for training, the rest for measuring.
    """

    stream: Sequence[StreamedAnswer]
    again: Sequence[StreamedAnswer] = ()
    base: Sequence[StreamedAnswer] = ()


class DistillBench:
    """Makes rows that share a target, a stream and the number of answers between rounds."""

    def __init__(
        self,
        engine: Engine,
        sampling: Sampling,
        draft_model: Trained,
        material: Material,
        every: int,
    ) -> None:
        self._engine = engine
        self._sampling = sampling
        self._draft_model = draft_model
        self.material = material
        self.every = every

    def static(self, name: str = "static", trained: Trained | None = None) -> DistillRow:
        """The draft model, or what `trained` drafts with, without training."""
        row = DistillRow(name)
        self._pass_all(row, trained or self._draft_model, None)
        return row

    def online(self, settings: TrainingSettings, *, by_topic: bool = False) -> Iterator[DistillRow]:
        """The draft model, trained online; yields the row after each part of the stream.

        Args:
            by_topic: train one draft model per topic, as in the paper's figures by language.
        """
        row = DistillRow(f"online, {settings.loss}{', one per topic' if by_topic else ''}")
        for stream in self._topics() if by_topic else [self.material.stream]:
            yield from self._online(row, self._draft_model, stream, settings)

    def online_head(
        self, settings: TrainingSettings, heads: Mapping[str, Trained]
    ) -> Iterator[list[DistillRow]]:
        """A head, trained online; yields a row for each of `heads` after each part.

        All of `heads` draft with the versions of the first.
        """
        rows = {name: DistillRow(name) for name in heads}
        first, *others = heads
        for _ in self._online(
            rows[first],
            heads[first],
            self.material.stream,
            settings,
            [(rows[name], heads[name]) for name in others],
        ):
            yield list(rows.values())

    def _online(
        self,
        row: DistillRow,
        trained: Trained,
        stream: Sequence[StreamedAnswer],
        settings: TrainingSettings,
        others: Sequence[tuple[DistillRow, Trained]] = (),
    ) -> Iterator[DistillRow]:
        """Train online; `others` share the versions."""
        topics = {answer.topic for answer in stream}
        with self._workspace(trained) as (buffer, versions):
            for part in self._parts(stream):
                records = self._pass(row, part, trained, self._current(versions))
                for measured, drafting in others:
                    self._pass(measured, part, drafting, self._current(versions))
                self._learn(row, records, buffer, trained, versions, settings)
                yield row
            for measured, drafting in [(row, trained), *others]:
                self._measure_end(measured, drafting, self._current(versions), topics)

    def offline(
        self, share: float, others: Sequence[StreamedAnswer], settings: TrainingSettings
    ) -> DistillRow:
        """The draft model, trained on a share of other answers before it meets the stream."""
        row = DistillRow(f"offline, {share:.0%}")
        trained, known = self._draft_model, others[: round(share * len(others))]
        with self._workspace(trained) as (buffer, versions):
            records = self._pass(DistillRow(""), known, trained, None)
            self._learn(row, records, buffer, trained, versions, settings)
            self._pass_all(row, trained, self._current(versions))
        return row

    @contextmanager
    def _workspace(self, trained: Trained) -> Iterator[tuple[ReplayBuffer, Versions]]:
        """An empty buffer and no versions, removed at the end of the block."""
        target = self._engine.target
        with TemporaryDirectory(prefix="specchat-bench-") as folder:
            path = Path(folder)
            size = target.vocabulary_size
            with closing(ReplayBuffer.open(path / "replay.db", target.fingerprint, size)) as buffer:
                yield buffer, Versions(path / "versions", trained.trainee.weights_file)

    def _current(self, versions: Versions) -> Path | None:
        number = versions.current
        return versions.file(number) if number else None

    def _topics(self) -> Iterator[Sequence[StreamedAnswer]]:
        for _, stream in groupby(self.material.stream, lambda answer: answer.topic):
            yield list(stream)

    def _parts(self, stream: Sequence[StreamedAnswer]) -> Iterator[Sequence[StreamedAnswer]]:
        """The answers between two rounds."""
        for first in range(0, len(stream), self.every):
            yield stream[first : first + self.every]

    def _pass_all(self, row: DistillRow, trained: Trained, version: Path | None) -> None:
        """Meet the whole stream with one version; in parts, as drafters start afresh in each."""
        stream = self.material.stream
        for part in self._parts(stream):
            self._pass(row, part, trained, version)
        self._measure_end(row, trained, version, {answer.topic for answer in stream})

    def _pass(
        self,
        row: DistillRow,
        part: Sequence[StreamedAnswer],
        trained: Trained,
        version: Path | None,
    ) -> list[ReplayRecord]:
        """Measure `part` of the stream with a version; returns what the product would record."""
        readers, half = trained.readers(version), len(self.material.stream) // 2
        trees, records = trained.steps(version, [answer.record for answer in part]), []
        for answer, tree in zip(part, trees, strict=True):
            figures = measure(readers, answer, self._sampling)
            figures.tree = tree
            row.meet(answer, figures, late=len(row.curve) >= half)
            records.append(as_recorded(answer.record, tree.missed))
        return records

    def _learn(
        self,
        row: DistillRow,
        records: Sequence[ReplayRecord],
        buffer: ReplayBuffer,
        trained: Trained,
        versions: Versions,
        settings: TrainingSettings,
    ) -> None:
        """Put `records` into the buffer and run a round."""
        started = process_time()
        for record in records:
            buffer.add(f"chat:{record.chat}", record)
            row.learned += len(record.tokens) - record.prompt_length
        base = [answer.record for answer in self.material.base]
        for item in run_round(
            buffer, trained.trainee, versions.folder, base=base, settings=settings
        ):
            if isinstance(item, RoundResult):
                row.versions += item.version is not None
                row.refused += [item.reason] if item.reason else []
        row.seconds += process_time() - started

    def _measure_end(
        self, row: DistillRow, trained: Trained, version: Path | None, topics: set[str]
    ) -> None:
        """Measure repeated questions of `topics`, and what the original draft model knew."""
        base = self.material.base
        held_out = {id(record) for record in split(one.record for one in base).held_out}
        kept = [answer for answer in base if id(answer.record) in held_out]
        again = [answer for answer in self.material.again if answer.topic in topics]
        original, readers = trained.readers(None), trained.readers(version)
        for name, reading, answers in (
            ("again", readers, again),
            ("base_before", original, kept),
            ("base_after", readers, kept),
        ):
            for answer in answers:
                row.figures[name].add(measure(reading, answer, self._sampling))
