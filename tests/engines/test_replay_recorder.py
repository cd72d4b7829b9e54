"""The recorder: it gathers what the tree missed, and changes no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from datastores.replay_buffer.record import ReplayRecord, question_key
from datastores.replay_buffer.store import ReplayBuffer
from datastores.replay_buffer.writer import AnswerDetails, ReplayWriter
from engines import replay_recorder
from engines.decode import StopCriteria, decode
from engines.replay_recorder import SAMPLE_EVERY, ReplayRecorder
from engines.sampler import Sampling, make_sampler
from engines.step import Step, StepObserver
from tests.engines.scripted import ORDER, VOCABULARY, ScriptedTarget, logits_after
from tests.engines.test_decode import NEVER, every_drafter, fixed

PROMPT = [1, 2, 3]
KEY = question_key("why?")
ORIGIN = AnswerDetails("chat:h:1", 1, KEY, KEY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replay.db"


@pytest.fixture
def writer(path: Path) -> Iterator[ReplayWriter]:
    opened = ReplayWriter(VOCABULARY, lambda: ReplayBuffer.open(path, "scripted", VOCABULARY))
    yield opened
    opened.close()


def answer(
    recorder: ReplayRecorder | None, temperature: float = 0.0, limit: int = 200
) -> list[Step]:
    target = ScriptedTarget()
    for _ in target.prefill(PROMPT):
        pass
    draw = make_sampler(Sampling(temperature, seed=5))
    keep = None if recorder is None else recorder.wanted
    observers: Sequence[StepObserver] = () if recorder is None else [recorder]
    stop = StopCriteria(NEVER, limit)
    steps = decode(target, every_drafter(), fixed(8), draw, stop, keep=keep, observers=observers)
    return list(steps)


def records(path: Path) -> list[ReplayRecord]:
    with closing(ReplayBuffer.open(path, "scripted", VOCABULARY)) as buffer:
        return list(buffer.records(with_states=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_record_is_the_answer_with_what_the_tree_missed(
    path: Path, writer: ReplayWriter, temperature: float
) -> None:
    recorder = ReplayRecorder(writer)
    steps = answer(recorder, temperature)
    recorder.keep(ORIGIN)
    writer.flush()
    [record] = records(path)
    tokens = [*PROMPT, *(token for step in steps for token in step.tokens)]
    origins = [0, 0, 0, *(origin for step in steps for origin in step.origins)]
    assert record.tokens.tolist() == tokens
    assert record.prompt_length == len(PROMPT)
    hidden = np.concatenate([step.hidden for step in steps])
    np.testing.assert_allclose(record.states.decoded(), hidden, atol=0.005 * np.abs(hidden).max())
    kept = [
        position
        for position in range(3, len(tokens))
        if not origins[position] or position % SAMPLE_EVERY == 0
    ]
    assert record.positions.tolist() == kept
    assert any(origins[position] for position in kept), "some that were drafted right"
    for row, position in enumerate(kept):
        logits = np.array(logits_after(tuple(tokens[position - ORDER : position]), 8.0))
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        expected = np.maximum(logprobs[record.top_tokens[row]], -50)
        np.testing.assert_allclose(record.top_logprobs[row], expected, rtol=1e-3, atol=1e-3)
        assert record.rest_logprob[row] == -50, "the vocabulary has no more than 64 tokens"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_the_same_with_and_without_it(writer: ReplayWriter, temperature: float) -> None:
    with_it = answer(ReplayRecorder(writer), temperature)
    without = answer(None, temperature)
    assert [(step.tokens, step.origins) for step in with_it] == [
        (step.tokens, step.origins) for step in without
    ]


def test_what_is_not_kept_is_not_written(path: Path, writer: ReplayWriter) -> None:
    recorder = ReplayRecorder(writer)
    answer(recorder, limit=30)
    answer(recorder, limit=20)
    recorder.keep(ORIGIN)
    recorder.keep(ORIGIN)
    answer(recorder)
    recorder.drop()
    recorder.keep(ORIGIN)
    writer.flush()
    assert [len(record.tokens) for record in records(path)] == [23]


def test_a_long_answer_keeps_no_more_rows_than_the_limit(
    path: Path, writer: ReplayWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_recorder, "MAX_ROWS", 10)
    recorder = ReplayRecorder(writer)
    steps = answer(recorder)
    recorder.keep(ORIGIN)
    writer.flush()
    [record] = records(path)
    assert 10 <= len(record.positions) < 10 + max(len(step.tokens) for step in steps)
    assert len(record.tokens) == 203
