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
from app.bench.acceptance import StreamedAnswer, measure
from app.bench.distill import (
    WINDOW,
    DistillBench,
    Material,
    as_recorded,
    asked_again,
    moving_mean,
    shifts,
)
from app.bench.trained import TrainedDraftModel, TrainedHead
from app.bench.workloads import Workload
from app.cli.main import run
from app.engine.engine import Engine
from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation import head as head_module
from engines.distillation.reader import DraftModelReader
from engines.distillation.weights import read_llama_file
from engines.replay_recorder import SAMPLE_EVERY
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
            StreamedAnswer(f"topic {number // 40}", False, 0, record)
            for number, record in enumerate(records)
        ]
        for number in range(3, 80, 4):
            stream[number] = replace(stream[number - 1], repeated=True)
        own = make_records(read_llama_file(workspace.draft_model).model(), 60, 5)
        base = [StreamedAnswer("base", False, 0, record) for record in own]
        material = Material(stream, stream[3::4], base)
        target = SimpleNamespace(vocabulary_size=workspace.buffer.vocabulary, fingerprint="target")
        engine = cast(Engine, SimpleNamespace(target=target))
        yield DistillBench(
            engine,
            GREEDY,
            TrainedDraftModel(workspace.draft_model, load_draft_model, GREEDY),
            material,
            40,
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
        row.figures["late_new"].alpha()
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
        assert row.figures["again"].alpha() >= static.figures["again"].alpha()
        assert row.figures["base_after"].alpha() >= row.figures["base_before"].alpha() - 0.02


def test_a_head_that_learns_drafts_alone_and_beside_the_draft_model(
    bench: DistillBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "EMBEDDED", "RANK", "NEGATIVES"):
        monkeypatch.setattr(head_module, name, 16)
    path = tmp_path / "draft-model.gguf"
    target = cast(Target, SimpleNamespace(fingerprint="target"))
    vocabulary = cast(Vocabulary, SimpleNamespace(stops=frozenset[int]()))
    alone = TrainedHead(path, target, vocabulary, GREEDY)
    both = TrainedHead(path, target, vocabulary, GREEDY, load_draft_model(path))
    plain, static = bench.static("n-grams", alone), bench.static()
    assert (plain.figures["new"].alpha(), plain.figures["new"].live) == (0.0, 0)
    assert plain.figures["new"].tree.tokens_per_step < static.figures["new"].tree.tokens_per_step
    (*_, rows) = bench.online_head(replace(TRAINING, rate=1e-2), {"head": alone, "both": both})
    head, beside = rows
    assert [row.name for row in rows] == ["head", "both"]
    assert head.curve == beside.curve  # the same versions
    assert head.curve[:40] == [0.0] * 40
    assert head.versions + len(head.refused) == 2
    assert (head.learned, beside.learned) == (80 * ANSWER, 0)
    if head.versions:
        assert head.figures["again"].alpha() > 0
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


def test_the_buffer_holds_what_the_product_records(bench: DistillBench) -> None:
    """The probabilities where the tree missed the token, and at an eighth of the others."""
    record = bench.material.stream[0].record
    start, places = record.prompt_length, record.positions.tolist()
    missed = {0, 3, 4, 11}
    found = as_recorded(record, missed)
    kept = [at for at in places if at - start in missed or at % SAMPLE_EVERY == 0]
    assert 2 < len(kept) < len(places)
    assert found.positions.tolist() == kept
    rows = [places.index(at) for at in kept]
    np.testing.assert_array_equal(found.top_tokens, record.top_tokens[rows])
    np.testing.assert_array_equal(found.top_logprobs, record.top_logprobs[rows])
    np.testing.assert_array_equal(found.rest_logprob, record.rest_logprob[rows])
    assert found.tokens is record.tokens


def test_a_row_records_what_its_own_tree_missed(
    bench: DistillBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ReplayRecord] = []
    add = ReplayBuffer.add

    def spy(buffer: ReplayBuffer, owner: str, record: ReplayRecord) -> int:
        seen.append(record)
        return add(buffer, owner, record)

    monkeypatch.setattr(ReplayBuffer, "add", spy)
    list(bench.online(replace(TRAINING, epochs=1)))
    stream = [answer.record for answer in bench.material.stream]
    trained = TrainedDraftModel(tmp_path / "draft-model.gguf", load_draft_model, GREEDY)
    trees = trained.steps(None, stream[:40])
    for record, recorded, tree in zip(stream, seen, trees, strict=False):
        assert recorded.positions.tolist() == as_recorded(record, tree.missed).positions.tolist()
    assert sum(len(one.positions) for one in seen) < sum(len(one.positions) for one in stream)


def test_live_acceptance_shares_the_noise_of_the_draw(bench: DistillBench, tmp_path: Path) -> None:
    """A draft model that is its own target draws what the target drew, at any temperature."""
    path = tmp_path / "draft-model.gguf"
    record = make_records(read_llama_file(path).model(), 1, 8)[0]
    figures = measure([DraftModelReader(path)], StreamedAnswer("", False, 0, record), GREEDY)
    assert (figures.live, figures.alpha()) == (ANSWER, 1.0)


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
    assert list(static["new"]["alpha_at"]) == ["0", "1"]
    assert static["new"]["alpha_at"]["1"] < 0.2  # it knows nothing
    assert static["new"]["alpha"] < 0.2
    assert static["again"]["answers"] == 1
    assert (static["new"]["answers"], static["repeated"]["answers"]) == (2, 1)
    assert online["refused"] == ["3 new answers are too few to learn from: 20 are needed"]
    assert online["curve"] == static["curve"]
    assert plot.read_text().startswith("<svg")
