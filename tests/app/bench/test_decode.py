"""`bench decode` on the scripted engine: pairing, identity and the shape of its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from app.bench.decode import DecodeRow, TimedAnswer, bound, fork_gap, run, speedup, summarise
from app.bench.forced import forced
from app.bench.workloads import Workload, read_workload
from app.bench.yardstick import CHUNKS, rechunked
from app.cli.output import table
from app.conversation.statistics import Statistics
from app.engine.loading import with_drafters
from datastores.errors import InputError
from engines.sampler import Sampling
from engines.target import Target
from engines.wrapped_target import WrappedTarget
from tests import recorded_workloads
from tests.app.scripted import scripted_engine
from tests.engines.scripted import logits_after

CHATS = [Workload("a", ("one", "two")), Workload("b", ("three",)), Workload("c", ("four",))]
COSTS = {"1": 2.0, "2": 3.0, "8": 9.0}
FIELDS = {
    "drafters", "chats", "tokens", "steps", "drafted", "accepted", "tokens_per_step",
    "acceptance_rate", "mean_acceptance_rate", "seconds", "speedup", "overhead_ms_per_step",
    "identical", "total_speedup", "largest_fork_gap", "by_drafter", "history", "shape",
    "draft_length", "fixed", "bound", "of_best_fixed", "of_hindsight", "overhead_ms_by_part",
}  # fmt: skip


def test_the_parts_of_the_overhead_add_up_to_it(tmp_path: Path) -> None:
    sets = rows(tmp_path)
    list(run(sets, CHATS[1:2], Sampling(0.0)))
    for row, drafters in zip(sets, (set(), {"prompt"}, {"prompt", "recycle"}), strict=True):
        (answer,) = row.answers()
        assert set(answer.overhead) == {"planning", "loop"} | drafters
        whole = answer.statistics.overhead_seconds
        assert sum(answer.overhead.values()) == pytest.approx(whole)


def rows(folder: Path) -> list[DecodeRow]:
    engine = scripted_engine(folder)
    return [
        DecodeRow("none", with_drafters(engine, (), 0)),
        DecodeRow("prompt", with_drafters(engine, ("prompt",), 6)),
        DecodeRow("all", with_drafters(engine, ("prompt", "recycle"), 6)),
    ]


def test_every_row_answers_the_same_chats_with_the_same_tokens(tmp_path: Path) -> None:
    sets = rows(tmp_path)
    assert list(run(sets, CHATS, Sampling(0.0))) == [1, 2, 3]
    plain, prompt, everything = (summarise(row, sets[0], Sampling(0.0), COSTS) for row in sets)
    for summary in (plain, prompt, everything):
        assert set(summary) == FIELDS
        assert summary["chats"] == 3
        assert summary["identical"] == 1.0
        assert summary["largest_fork_gap"] == 0.0
        assert summary["tokens"] == plain["tokens"]
    assert plain["speedup"] == 1.0
    assert plain["drafted"] == 0
    accepted, steps, most = (
        everything["accepted"],
        everything["steps"],
        plain["steps"],
    )
    assert isinstance(accepted, int)
    assert isinstance(steps, int)
    assert isinstance(most, int)
    assert accepted > 0
    assert steps < most


def test_the_yardstick_reads_prompts_in_other_passes_and_leaves_no_trace(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    target = PassRecorder(engine.target)
    sets = [DecodeRow("none", replace(with_drafters(engine, (), 0), target=target))]
    other = DecodeRow("other", rechunked(sets[0].engine))
    target.ends.clear()
    list(run(sets, [Workload("long", ("x" * 68,))], Sampling(0.0), other))
    (plain,), (again,) = sets[0].answers(), other.answers()
    assert again.prompt == plain.prompt
    assert again.tokens == plain.tokens, "the scripted model does not round"
    length = len(plain.prompt)
    assert sum(CHUNKS) < length < sum(CHUNKS) + CHUNKS[0]
    assert target.ends == [length, *accumulate(CHUNKS), length]
    assert not target.tokens, "other rows must not continue from what it read"


class PassRecorder(WrappedTarget):
    """A target that records up to where each prefill read."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.ends: list[int] = []

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        self.ends.append(len(tokens))
        return super().prefill(tokens)


def answer(
    tokens: tuple[int, ...], seconds: float = 1.0, rows: tuple[int, ...] = ()
) -> TimedAnswer:
    statistics = Statistics(step_tokens=len(tokens), decode_seconds=seconds)
    return TimedAnswer((1, 2, 3), tokens, 0, rows, statistics, "")


def test_a_fork_is_reported_with_the_gap_it_had(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    plain, forked = answer((4, 5, 6)), answer((4, 7, 8))
    logits = np.sort(logits_after((4,), 8.0))
    expected = pytest.approx(logits[-1] - logits[-2])
    assert fork_gap(engine, Sampling(0.0), forked, plain) == expected
    assert fork_gap(engine, Sampling(0.0), plain, plain) == 0.0


def test_speedup_is_the_median_of_paired_ratios(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    plain = DecodeRow("none", engine, chats=[[answer((1, 2), took)] for took in (2.0, 4.0, 9.0)])
    fast = DecodeRow("all", engine, chats=[[answer((1, 2), took)] for took in (1.0, 1.0, 9.0)])
    assert speedup(fast, plain) == 2.0


def test_the_bound_is_what_the_passes_alone_would_allow() -> None:
    assert bound([answer((1, 2, 3, 4), rows=(1, 2))], COSTS) == 4 * 2.0 / (2.0 + 3.0)
    assert bound([answer((1, 2, 3, 4), rows=(5,))], COSTS) == pytest.approx(4 * 2.0 / 6.0)
    assert bound([answer((1,))], COSTS) == 1.0


def test_the_automatic_length_is_compared_with_fixed_ones(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)

    def taking(*seconds: float) -> DecodeRow:
        return DecodeRow("all", engine, chats=[[answer((1, 2), took)] for took in seconds])

    automatic = taking(2.0, 2.0, 2.0)
    short, long = taking(1.0, 3.0, 3.0), taking(4.0, 4.0, 1.8)
    summary = summarise(automatic, automatic, Sampling(0.0), COSTS, [short, long])
    assert summary["of_best_fixed"] == 1.5
    assert summary["of_hindsight"] == pytest.approx(0.9)
    alone = summarise(automatic, automatic, Sampling(0.0), COSTS)
    assert alone["of_best_fixed"] is alone["of_hindsight"] is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no chats"),
        ("{]", "line 1"),
        ('{"messages": 3}', "line 1"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "no message of role user"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_a_bad_workload_is_named(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "workload.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=complaint):
        read_workload(path)


def test_tables_align() -> None:
    text = table(
        [{"name": "a", "rate": 0.5}, {"name": "bcd", "rate": 12.25}], {"name": "", "rate": ".1f"}
    )
    assert text.splitlines() == ["name  rate", "a      0.5", "bcd   12.2"]


def test_recorded_answers_are_written_whatever_the_model_would_say(tmp_path: Path) -> None:
    engine = forced(scripted_engine(tmp_path))
    record = "say this and this and this and this"
    sets = [
        DecodeRow("none", with_drafters(engine, (), 0)),
        DecodeRow("all", with_drafters(engine, ("prompt", "recycle"), 6)),
    ]
    assert list(run(sets, [Workload("a", ("one",), (record,))], engine.defaults.sampling)) == [1]
    expected = (*engine.vocabulary.encode(record), min(engine.vocabulary.stops))
    for row in sets:
        (answer,) = row.answers()
        assert answer.tokens == expected
    assert sets[1].answers()[0].statistics.steps < len(expected) - 1


def test_code_of_the_standard_library_is_a_recorded_workload(tmp_path: Path) -> None:
    path = tmp_path / "code.jsonl"
    recorded_workloads.main("code", str(path))
    assert len(read_workload(path, recorded=True)) == recorded_workloads.CHATS


def test_a_recorded_workload_needs_an_answer_to_each_question(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    question, reply = ({"role": role, "content": role} for role in ("user", "assistant"))
    path.write_text(json.dumps({"messages": [question, reply]}))
    assert read_workload(path, recorded=True)[0].answers == ("assistant",)
    path.write_text(json.dumps({"messages": [question, reply, question]}))
    with pytest.raises(InputError, match="not every question has a recorded answer"):
        read_workload(path, recorded=True)
