"""The benchmark of online distillation, on a tiny draft model and a target it can learn from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.bench.__main__ import papers
from app.bench.acceptance import StreamedAnswer, alphas, measure
from app.bench.distill import WINDOW, DistillBench, Material, asked_again, moving_mean, shifts
from app.bench.trained import TrainedDraftModel, TrainedHead
from app.bench.workloads import Workload
from app.cli.main import run
from app.engine.engine import Engine
from datastores.replay_buffer.record import top_of
from engines.distillation import head as head_module
from engines.distillation.reader import DraftModelReader
from engines.distillation.weights import read_llama_file
from engines.sampler import Sampling
from engines.target import Target, Vocabulary
from tests.engines.distillation.workspace import (
    ANSWER,
    SETTINGS,
    load_draft_model,
    make_records,
    make_target,
    open_workspace,
)

TRAINING = replace(SETTINGS, epochs=2)
GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DistillBench]:
    """Eighty answers of a target, every fourth one to a question asked before; and what the
    draft model says itself."""
    with open_workspace(tmp_path, answers=0) as workspace:
        records = make_records(make_target(workspace.draft_model, 1), 80, 1)
        stream = [
            StreamedAnswer(f"topic {number // 40}", False, 0, record, {})
            for number, record in enumerate(records)
        ]
        for number in range(3, 80, 4):
            stream[number] = replace(stream[number - 1], repeated=True)
        own = make_records(read_llama_file(workspace.draft_model).model(), 60, 5)
        base = [StreamedAnswer("base", False, 0, record, {}) for record in own]
        material = Material(stream, stream[3::4], base)
        target = SimpleNamespace(vocabulary_size=workspace.buffer.vocabulary, fingerprint="target")
        engine = cast(Engine, SimpleNamespace(target=target))
        yield DistillBench(
            engine, GREEDY, TrainedDraftModel(workspace.draft_model, load_draft_model), material, 40
        )


def test_new_and_repeated_questions_are_counted_apart(bench: DistillBench) -> None:
    row = bench.static()
    summary: Any = row.summary()
    assert (row.figures["new"].answers, row.figures["repeated"].answers) == (60, 20)
    assert (row.figures["late_new"].answers, row.figures["late_repeated"].answers) == (30, 10)
    assert len(summary["curve"]) == 80
    (shift,) = summary["shifts"]
    assert shift["topic"] == "topic 1"
    assert shift["last"] == pytest.approx(
        row.figures["late_new"].alpha(0)
    )  # 30 answers of one length
    assert row.met == {"topic 0": 40, "topic 1": 40}
    assert summary["base_before"] == summary["base_after"]
    assert summary["again"] == {**summary["repeated"], "tokens_per_step": None}
    assert summary["new"]["tokens_per_step"] >= 1


def test_a_draft_model_that_learns_is_met_with_what_it_learned_before(bench: DistillBench) -> None:
    static = bench.static()
    (*_, row) = bench.online(TRAINING)
    assert row.curve[:40] == static.curve[:40]  # nothing was learned before the first round
    assert row.versions + len(row.refused) == 2
    assert (row.seconds > 0, row.learned) == (True, 80 * ANSWER)
    if row.versions:
        assert row.figures["again"].alpha(0) >= static.figures["again"].alpha(0)
        assert row.figures["base_after"].alpha(0) >= row.figures["base_before"].alpha(0) - 0.02


def test_a_head_that_learns_drafts_alone_and_beside_the_draft_model(
    bench: DistillBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "EMBEDDED", "RANK", "NEGATIVES"):
        monkeypatch.setattr(head_module, name, 16)
    path = tmp_path / "draft-model.gguf"
    target = cast(Target, SimpleNamespace(fingerprint="target"))
    vocabulary = cast(Vocabulary, SimpleNamespace(stops=frozenset[int]()))
    alone = TrainedHead(path, target, vocabulary)
    both = TrainedHead(path, target, vocabulary, load_draft_model(path))
    plain, static = bench.static("n-grams", alone), bench.static()
    assert (plain.figures["new"].alpha(0), plain.figures["new"].live) == (0.0, 0)
    assert plain.figures["new"].tree.tokens_per_step < static.figures["new"].tree.tokens_per_step
    (*_, rows) = bench.online_head(replace(TRAINING, rate=1e-2), {"head": alone, "both": both})
    head, beside = rows
    assert [row.name for row in rows] == ["head", "both"]
    assert head.curve == beside.curve  # the same versions
    assert head.curve[:40] == [0.0] * 40
    assert head.versions + len(head.refused) == 2
    assert (head.learned, beside.learned) == (80 * ANSWER, 0)
    if head.versions:
        assert head.figures["again"].alpha(0) > 0
        assert head.figures["again"].tokens == head.figures["again"].answers * (ANSWER - 1)


def test_one_draft_model_per_topic_begins_afresh_with_each(bench: DistillBench) -> None:
    static = bench.static()
    (*_, row) = bench.online(TRAINING, by_topic=True)
    assert row.name == "online, lk, one per topic"
    assert row.curve == static.curve  # each topic ends before its first round
    assert row.versions + len(row.refused) == 2
    assert row.figures["again"].answers == static.figures["again"].answers
    assert (
        row.figures["base_after"].answers
        == 2 * row.figures["base_before"].answers / 2
        == 2 * static.figures["base_after"].answers
    )


def test_offline_learning_comes_before_the_stream(bench: DistillBench) -> None:
    row = bench.offline(0.5, bench.material.stream, TRAINING)
    assert (row.name, len(row.curve)) == ("offline, 50%", 80)
    assert row.versions + len(row.refused) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_alpha_is_the_overlap_of_both_distributions(
    bench: DistillBench, temperature: float
) -> None:
    generator = np.random.default_rng(4)
    target, draft_model = (generator.normal(0, 3, (5, 90)).astype(np.float32) for _ in range(2))
    top, logprobs, rest = top_of(target / np.float32(temperature))
    logs = np.concatenate([logprobs, rest[:, None]], axis=1).astype(np.float64)
    record = replace(bench.material.stream[0].record, top_tokens=top)
    answer = replace(bench.material.stream[0], record=record, logs={temperature: logs})

    def events(logits: Any) -> Any:
        shares = np.exp(logits / temperature)
        shares /= shares.sum(axis=1, keepdims=True)
        kept = np.take_along_axis(shares, top.astype(np.intp), 1)
        return np.concatenate([kept, 1 - kept.sum(axis=1, keepdims=True)], axis=1)

    wanted = np.minimum(events(target.astype(float)), events(draft_model.astype(float))).sum(axis=1)
    assert alphas(draft_model, answer, temperature) == pytest.approx(wanted, abs=2e-3)


def test_live_acceptance_shares_the_noise_of_the_draw(bench: DistillBench, tmp_path: Path) -> None:
    """A draft model that is its own target draws what the target drew, at any temperature."""
    path = tmp_path / "draft-model.gguf"
    record = make_records(read_llama_file(path).model(), 1, 8)[0]
    figures = measure([DraftModelReader(path)], StreamedAnswer("", False, 0, record, {}), GREEDY)
    assert (figures.live, figures.alpha(0)) == (ANSWER, 1.0)


def test_questions_asked_more_than_once_are_asked_again() -> None:
    chats = [Workload("a", ("one", "two")), Workload("b", ("three", "one"))]
    found = asked_again({"first": chats, "second": chats[:1]})
    assert found == {"first": [Workload("", ("one",))], "second": []}


def test_a_shift_ends_where_the_level_before_is_nearly_reached() -> None:
    before = dict.fromkeys(range(1, 81), 0.8)
    # Every fifth answer is to a repeated question, which does not count.
    numbers = [number for number in range(1, 201) if number % 5]
    after = {number: 0.5 if number <= 100 else 0.9 for number in numbers}
    (found,) = shifts({"a": before, "b": after})
    assert found == {
        "topic": "b",
        "before": pytest.approx(0.8),
        "first": pytest.approx(0.5),
        "last": pytest.approx(0.9),
        "back": 134,  # 28 of the last 50 new answers at 0.9 make 0.724
    }
    assert shifts({"a": before, "b": dict.fromkeys(numbers, 0.7)})[0]["back"] is None
    assert shifts({"a": before}) == []


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
    options = ["--workload", str(chats), "--draft-model", "new", "--per-topic"]
    assert run([*folder, "distill", *options, "--json", "--plot", str(plot)], papers) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ["static", "online, lk", "online, lk, one per topic"]
    assert [row["draft_model"] for row in report["rows"]] == names
    static, online, _ = report["rows"]
    assert list(static["new"]["alpha"]) == ["0", "1", "1.5"]
    assert static["new"]["alpha"]["1"] < 0.2  # it knows nothing
    assert static["again"]["answers"] == 1
    assert (static["new"]["answers"], static["repeated"]["answers"]) == (2, 1)
    assert online["refused"] == ["3 new answers are too few to learn from: 20 are needed"]
    assert online["curve"] == static["curve"]
    assert plot.read_text().startswith("<svg")
