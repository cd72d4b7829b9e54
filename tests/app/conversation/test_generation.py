"""One turn through the decode loop: who sees its steps, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event as Flag

import pytest

from app.chat_settings import AnswerEnd
from app.conversation.assistant import Assistant
from app.conversation.events import Event, Finished, Wrote
from app.conversation.generation import FINISH_INTERRUPTED, GenerationRequest, generate
from app.conversation.statistics import Statistics
from app.engine.engine import Engine
from datastores.chats.history import History
from engines.chat_template.prompt_builder import Message
from engines.draft_tree import DraftTree, root_only
from engines.sampler import Sampling
from engines.step import FINISH_CONTEXT, FINISH_LENGTH, FINISH_STOP, Context, Step
from tests.app.scripted import Recorder, ScriptedVocabulary, scripted_engine

GREEDY = Sampling(temperature=0.0)


class SilentDrafter(Recorder):
    """A drafter that proposes nothing and keeps what it sees."""

    name = "draft-model"
    top_tokens_needed = 0

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Nothing."""
        return root_only(context.root)


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Recorder, ...]:
    """Recorders of what a drafter, the budget and an observer of the engine see."""
    drafter, budget, observer = SilentDrafter(), Recorder(), Recorder()
    engine.drafters.append(drafter)
    engine.observers.append(observer)
    begin, observe = engine.budget.begin, engine.budget.observe

    def recorded_begin(context: Context) -> None:
        budget.begin(context)
        begin(context)

    def recorded_observe(step: Step) -> None:
        budget.observe(step)
        observe(step)

    monkeypatch.setattr(engine.budget, "begin", recorded_begin)
    monkeypatch.setattr(engine.budget, "observe", recorded_observe)
    return drafter, budget, observer


def steps_of(events: Sequence[Event]) -> list[Step]:
    return [event.step for event in events if isinstance(event, Wrote)]


def finish_of(events: Sequence[Event]) -> str:
    last = events[-1]
    assert isinstance(last, Finished)
    return last.finish


@pytest.mark.parametrize("draft_tokens", [None, 0, 8])
@pytest.mark.parametrize("finish", [FINISH_STOP, FINISH_LENGTH, FINISH_CONTEXT])
def test_drafters_budget_and_observers_see_every_step_of_a_turn(
    tmp_path: Path,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    finish: str,
    draft_tokens: int | None,
) -> None:
    engine = scripted_engine(
        tmp_path,
        draft_tokens=draft_tokens,
        sampling=GREEDY,
        max_tokens=500 if finish == FINISH_CONTEXT else 40,
        context_length=60 if finish == FINISH_CONTEXT else 512,
    )
    if finish == FINISH_STOP:
        plain = list(generate(engine, *_arguments()))
        said = [token for step in steps_of(plain) for token in step.tokens]
        monkeypatch.setattr(ScriptedVocabulary, "stops", frozenset({said[20]}))
    recorders = watched(engine, monkeypatch)
    assistant = Assistant(engine, history)
    chat = history.create_chat().id
    events = list(assistant.answer(chat, None, "sing"))
    steps = steps_of(events)
    assert finish_of(events) == steps[-1].finish == finish
    assert steps[0].prefill
    for recorder in recorders:
        assert len(recorder.contexts) == 1
        assert [id(step) for step in recorder.steps] == [id(step) for step in steps]


def test_an_answer_of_one_token_is_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted_engine(tmp_path, max_tokens=1)
    recorders = watched(engine, monkeypatch)
    (step,) = steps_of(list(generate(engine, *_arguments(1))))
    assert step.prefill
    assert step.finish == FINISH_LENGTH
    for recorder in recorders:
        assert recorder.steps == [step]


@pytest.mark.parametrize("closed", [False, True])
def test_a_step_is_observed_before_it_is_yielded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    engine = scripted_engine(tmp_path)
    recorders = watched(engine, monkeypatch)
    stop = Flag()
    seen: list[Event] = []
    events = generate(engine, *_arguments(40, stop))
    for event in events:
        seen.append(event)
        for recorder in recorders:
            assert recorder.steps == steps_of(seen)
        if len(steps_of(seen)) == 5:
            stop.set()
            if closed:
                events.close()
    assert len(steps_of(seen)) == 5
    assert closed or finish_of(seen) == FINISH_INTERRUPTED


def test_the_statistics_count_the_last_step_and_time_the_first_token(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path, draft_tokens=6, sampling=GREEDY)
    request, statistics, stop = _arguments()
    events = list(generate(engine, request, statistics, stop))
    steps = steps_of(events)
    assert statistics.tokens == sum(len(step.tokens) for step in steps) == request.end.max_tokens
    assert statistics.accepted == sum(step.accepted for step in steps)
    assert statistics.steps == len(steps) - 1
    assert 0.0 < statistics.first_token_seconds <= statistics.seconds


def _arguments(
    limit: int = 40, stop: Flag | None = None
) -> tuple[GenerationRequest, Statistics, Flag]:
    """What a turn takes beside the engine."""
    request = GenerationRequest([Message("user", "sing")], GREEDY, AnswerEnd(limit))
    return request, Statistics(), stop or Flag()
