"""The benchmark of online distillation, on a tiny student and a teacher it can learn from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.bench.distill import (
    WINDOW,
    Classroom,
    StreamedAnswer,
    alphas,
    measure,
    moving_mean,
)
from app.cli.main import run
from app.engine.engine import Engine
from datastores.replay_buffer.record import top_of
from engines.distillation.reader import StudentReader, write_untrained
from engines.distillation.weights import read_student
from engines.sampler import Sampling
from tests.engines.distillation.school import (
    SETTINGS,
    load_student,
    make_records,
    make_teacher,
    open_school,
)

GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Classroom]:
    """Eighty answers of a teacher, every fourth one to a question asked before; and what the
    student says itself."""
    with open_school(tmp_path, answers=0) as school:
        records = make_records(make_teacher(school.student, 1), 80, 1)
        stream = [
            StreamedAnswer(f"topic {number // 40}", False, record, None)
            for number, record in enumerate(records)
        ]
        for number in range(3, 80, 4):
            stream[number] = replace(stream[number - 1], repeated=True)
        own = make_records(read_student(school.student).model(), 60, 5)
        base = [StreamedAnswer("base", False, record, None) for record in own]
        target = SimpleNamespace(vocabulary_size=school.buffer.vocabulary, fingerprint="teacher")
        engine = cast(Engine, SimpleNamespace(target=target))
        yield Classroom(engine, GREEDY, school.student, load_student, stream, base, 40)


def test_new_and_repeated_questions_are_counted_apart(room: Classroom) -> None:
    row = room.static()
    summary: Any = row.summary()
    assert (row.new.answers, row.repeated.answers) == (60, 20)
    assert (row.late_new.answers, row.late_repeated.answers) == (30, 10)
    assert len(summary["curve"]) == 80
    assert summary["topics"]["topic 1"]["answers"] == 40
    assert summary["base_before"] == summary["base_after"]
    assert summary["new"]["alpha"] == summary["new"]["live_acceptance"]  # one thing, if greedy
    assert summary["new"]["tokens_per_call"] >= 1


def test_a_student_that_learns_is_met_with_what_it_learned_before(room: Classroom) -> None:
    static = room.static()
    (*_, row) = room.online(SETTINGS)
    assert row.curve[:40] == static.curve[:40]  # nothing was learned before the first round
    assert row.versions + len(row.refused) == 2
    assert row.seconds > 0
    if row.versions:
        assert row.late_repeated.alpha >= static.late_repeated.alpha
        assert row.base_after.alpha >= row.base_before.alpha - 0.02 * row.base_before.positions


def test_offline_learning_comes_before_the_stream(room: Classroom) -> None:
    row = room.offline(0.5, room.stream, SETTINGS)
    assert (row.name, len(row.curve)) == ("offline, 50%", 80)
    assert row.versions + len(row.refused) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_alpha_is_the_overlap_of_both_distributions(room: Classroom, temperature: float) -> None:
    generator = np.random.default_rng(4)
    target, student = (generator.normal(0, 3, (5, 90)).astype(np.float32) for _ in range(2))
    top, logprobs, rest = top_of(target / np.float32(temperature))
    tempered = (top, np.concatenate([logprobs, rest[:, None]], axis=1).astype(np.float64))
    answer = replace(room.stream[0], tempered=tempered)

    def events(logits: Any) -> Any:
        shares = np.exp(logits / temperature)
        shares /= shares.sum(axis=1, keepdims=True)
        kept = np.take_along_axis(shares, top.astype(np.intp), 1)
        return np.concatenate([kept, 1 - kept.sum(axis=1, keepdims=True)], axis=1)

    wanted = np.minimum(events(target.astype(float)), events(student.astype(float))).sum(axis=1)
    assert alphas(student, answer, temperature) == pytest.approx(wanted, abs=2e-3)


def test_live_acceptance_shares_the_noise_of_the_draw(room: Classroom, tmp_path: Path) -> None:
    """A student that is its own target draws what the target drew, at any temperature."""
    path = tmp_path / "student.gguf"
    record = make_records(read_student(path).model(), 1, 8)[0]
    figures = measure(StudentReader(path), StreamedAnswer("", False, record, None), GREEDY)
    assert figures.live == figures.alpha == figures.positions == len(record.tokens) - 4


def test_an_untrained_student_knows_nothing(tmp_path: Path) -> None:
    with open_school(tmp_path, answers=0) as school:
        write_untrained(school.student, tmp_path / "new.gguf", 1)
        record = make_records(read_student(school.student).model(), 1, 8)[0]
        one, other = (StudentReader(tmp_path / name) for name in ("student.gguf", "new.gguf"))
        assert np.abs(one.answer_logits(record) - other.answer_logits(record)).max() > 0.5
        write_untrained(school.student, tmp_path / "again.gguf", 1)
        assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "new.gguf").read_bytes()


def test_means_are_over_the_last_answers() -> None:
    assert moving_mean([1.0, 0.0, 2.0]) == [1.0, 0.5, 1.0]
    assert moving_mean([0.0] * WINDOW + [1.0] * WINDOW)[-1] == 1.0


def test_the_command_prints_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chats = tmp_path / "chats.jsonl"
    questions = ["list files", "what is tar?", "list files"]
    messages = [{"messages": [{"role": "user", "content": one}]} for one in questions]
    chats.write_text("".join(f"{json.dumps(one)}\n" for one in messages))
    plot = tmp_path / "plot.svg"
    folder = ["--data-dir", str(tmp_path / "data"), "--temperature", "1", "--max-tokens", "12"]
    options = ["--workload", str(chats), "--json", "--plot", str(plot)]
    assert run([*folder, "bench", "distill", *options]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["student"] for row in report["rows"]] == ["static", "online, lk"]
    static, online = report["rows"]
    assert (static["new"]["answers"], static["repeated"]["answers"]) == (2, 1)
    assert online["refused"] == ["3 new answers are too few to learn from: it takes 20"]
    assert online["curve"] == static["curve"]
    assert plot.read_text().startswith("<svg")
