"""A buffer with answers that no target gave: nothing that drafts worse is published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.acceptance import WHOLE
from engines.distillation.gate import MAX_LOSS, MAX_NOISE
from engines.distillation.holdout import MAX_MEASURED, measuring, split
from engines.distillation.reader import evaluate
from engines.distillation.round import RoundResult
from engines.distillation.versions import Versions
from engines.distillation.weights import read_llama_file
from tests.engines.distillation.workspace import (
    ANSWER,
    PROMPT,
    SETTINGS,
    Workspace,
    make_records,
    make_target,
    open_workspace,
)

Tokens = NDArray[np.int32]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path, answers=0) as workspace:
        yield workspace


def answered(record: ReplayRecord, answer: Tokens) -> ReplayRecord:
    """`record` with another answer, of which only the tokens are known: nothing contradicts it."""
    return replace(
        record,
        tokens=np.concatenate([record.tokens[:PROMPT], answer]),
        positions=record.positions[:0],
        top_tokens=record.top_tokens[:0],
        top_logprobs=record.top_logprobs[:0],
        rest_logprob=record.rest_logprob[:0],
    )


def fill(workspace: Workspace, records: list[ReplayRecord]) -> list[ReplayRecord]:
    for record in records:
        workspace.buffer.add("chat:1", record)
    return records


def acceptance(workspace: Workspace, records: list[ReplayRecord]) -> float:
    """α of what drafts now."""
    versions = Versions(workspace.folder)
    path = versions.file(versions.current) if versions.current else workspace.draft_model
    return evaluate(read_llama_file(path).model(), records, WHOLE)[0]


def assert_refused(workspace: Workspace, result: RoundResult, reason: str) -> None:
    assert reason in result.reason
    assert Versions(workspace.folder).all() == []


def test_one_answer_to_every_question_measures_nothing(empty: Workspace) -> None:
    records = make_records(make_target(empty.draft_model, 1), 60, 1)
    fill(empty, [answered(record, records[0].tokens[PROMPT:]) for record in records])
    assert_refused(empty, empty.run(), "1 held-out questions with 24 tokens are too few")


def test_contradictory_answers_measure_nothing(empty: Workspace) -> None:
    for seed in (1, 2):
        fill(empty, make_records(make_target(empty.draft_model, seed), 30, 1))
    assert_refused(empty, empty.run(), "0 held-out questions with 0 tokens are too few")


def test_one_answer_in_many_wordings_costs_little_of_what_was_learned(empty: Workspace) -> None:
    """On all held-out questions together, it looks like a gain."""
    target, random = make_target(empty.draft_model, 1), np.random.default_rng(3)
    known = measuring(split(fill(empty, make_records(target, 90, 1))).held_out)
    assert empty.run().version is not None
    learned = acceptance(empty, known)
    for record in make_records(target, 90, 2):
        answer = np.full(ANSWER, 200, np.int32)
        answer[random.integers(0, ANSWER, 2)] = random.integers(0, 200, 2)
        fill(empty, [answered(record, answer)])
    empty.run(replace(SETTINGS, older=0.0))
    assert acceptance(empty, known) >= learned - MAX_LOSS - MAX_NOISE


def test_no_answer_decides_by_its_length_or_number(empty: Workspace) -> None:
    records = make_records(make_target(empty.draft_model, 1), 3, 1)
    endless = answered(records[0], np.arange(10 * ANSWER, dtype=np.int32))
    again = answered(records[1], endless.tokens[PROMPT:])
    first, last = measuring([endless, again, records[2]])
    assert len(first.tokens) == PROMPT + MAX_MEASURED
    assert (first.chat, last.chat) == (1, 3)
    assert last.tokens.tolist() == records[2].tokens.tolist()


def test_random_answers_publish_nothing_bad(empty: Workspace) -> None:
    """Tokens and probabilities that no model gave: there is nothing to learn in them."""
    random = np.random.default_rng(3)
    base = make_records(read_llama_file(empty.draft_model).model(), 60, 5)
    for record in make_records(make_target(empty.draft_model, 1), 90, 1):
        answer = random.integers(0, 200, len(record.tokens)).astype(np.int32)
        shuffled = random.random((len(record.positions), 256)).argsort(axis=1)
        tokens = shuffled[:, :64].astype(np.int32)
        answer[record.positions] = tokens[:, 0]
        empty.buffer.add("chat:1", replace(record, tokens=answer, top_tokens=tokens))
    held_out = split(base).held_out
    before = evaluate(read_llama_file(empty.draft_model).model(), held_out, WHOLE)[0]
    result = empty.run(base=base)
    if result.version is not None:
        path = Versions(empty.folder).file(1)
        assert evaluate(read_llama_file(path).model(), held_out, WHOLE)[0] >= before - 0.01
