"""The report sums stored figures by day or week."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import date, datetime

import pytest

from app.engine.draft_model_versions import NewAnswers, head_versions, replay_path
from app.interface.statistics.page import page
from app.locations import Locations
from app.usage_report import acceptance_curve, period_days, read_report
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.chats.usage import (
    DRAFT_MODEL_KEY,
    MODEL_KEY,
    DayUsage,
    DraftModelUsage,
    Usage,
    daily_usage,
)
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.versions import DRAFT_MODEL_FILE, Attempt, Version, Versions
from engines.fingerprint import fingerprint
from tests.app.interface.panel.test_panel import STYLES
from tests.datastores.replay_buffer.records import VOCABULARY, record

FIGURES = {
    MODEL_KEY: "built-in",
    "tokens": 101,
    "steps": 40,
    "step_tokens": 100,
    "decode_seconds": 2.0,
    "plain_seconds": 4.0,
    "by_origin": {"chats": 50, "prompt": 10},
    "drafted_by_origin": {"chats": 100, "prompt": 10},
}
EARLIER = {
    key: value
    for key, value in FIGURES.items()
    if key not in (MODEL_KEY, "plain_seconds", "drafted_by_origin")
}
"""Figures as stored before speeds were compared."""

TODAY = date(2026, 11, 22)


def answered(history: History, day: date, figures: object, model: str = "f" * 16) -> int:
    """Store one answer on that day."""
    chat = history.create_chat("a chat").id
    question = history.add_message(chat, None, USER, "why?")
    answer = history.add_message(
        chat,
        question.id,
        ASSISTANT,
        "because",
        model=model,
        statistics=figures,  # type: ignore[arg-type]
    )
    noon = datetime(day.year, day.month, day.day, 12).timestamp()
    with history.store.writing() as db:
        db.table("messages").update(answer.id, {"created": noon})
    return chat


def test_answers_are_summed_by_day_and_model(history: History) -> None:
    answered(history, TODAY, FIGURES)
    answered(history, TODAY, FIGURES)
    answered(history, TODAY, FIGURES, "other")
    both, other = sorted(daily_usage(history), key=lambda day: -day.usage.answers)
    assert (both.day, both.name, both.usage.answers, other.usage.answers) == (
        TODAY,
        "built-in",
        2,
        1,
    )
    usage = both.usage
    assert (usage.tokens, usage.saved_steps, usage.speed) == (202, 120, 50.0)
    assert (usage.ratio, usage.plain_speed, usage.saved_seconds) == (2.0, 25.0, 4.0)
    assert usage.by_origin == {"chats": 100, "prompt": 20}
    assert (usage.accepted("chats"), usage.accepted("prompt"), usage.accepted("dense")) == (
        0.5,
        1.0,
        None,
    )


def test_earlier_answers_are_not_compared(history: History) -> None:
    answered(history, TODAY, EARLIER)
    answered(history, TODAY, FIGURES)
    [day] = daily_usage(history)
    usage = day.usage
    assert (usage.step_tokens, usage.compared_tokens) == (200, 100)
    assert (usage.ratio, usage.plain_speed) == (2.0, 25.0)
    assert usage.share("chats") == 100 / 202, "where words came from was always stored"
    assert usage.accepted("chats") == 0.5, "of the answer whose drafts were counted alone"


def test_an_unfinished_answer_and_a_deleted_chat_count_nothing(history: History) -> None:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "why?")
    history.add_message(chat, question.id, ASSISTANT, "be", finish="", statistics=FIGURES)
    assert daily_usage(history) == []
    history.delete_chat(answered(history, TODAY, FIGURES))
    assert daily_usage(history) == []


def test_figures_from_elsewhere_do_not_break_the_report(
    history: History, locations: Locations
) -> None:
    for figures in (
        {},
        {"tokens": "many", "by_origin": "prompt", "drafted_by_origin": [1, {"a": 2}]},
        {"by_origin": {"<img>": 3, "chats": "x"}, MODEL_KEY: 7, "plain_seconds": float("inf")},
    ):
        answered(history, TODAY, figures)
    with history.store.writing() as db:
        db.conn.execute("UPDATE messages SET created = 1e300 WHERE id = 2")
    report = read_report(history, locations, TODAY)
    assert report.total.answers == 2
    assert report.total.ratio == 0


def test_few_days_are_shown_singly_and_many_as_weeks_without_gaps(
    history: History, locations: Locations
) -> None:
    answered(history, TODAY, FIGURES)
    report = read_report(history, locations, date(2026, 11, 24))
    assert [period.start.day for period in report.periods] == [22, 23, 24]
    assert [period.usage.answers for period in report.periods] == [1, 0, 0]
    answered(history, date(2026, 11, 4), FIGURES)
    report = read_report(history, locations, TODAY)
    assert report.days == 7
    starts = [period.start for period in report.periods]
    assert starts == [date(2026, 11, 2), date(2026, 11, 9), date(2026, 11, 16)]
    assert [period.usage.answers for period in report.periods] == [1, 0, 1]
    assert sum(period.usage.tokens for period in report.periods) == report.total.tokens


def test_periods_become_weeks_after_two_weeks() -> None:
    first = [DayUsage(date(2026, 11, 9), "", "", Usage())]
    assert period_days([], TODAY) == 1
    assert period_days(first, TODAY) == 1
    assert period_days(first, date(2026, 11, 23)) == 7


def test_models_have_the_name_that_was_stored_last(history: History, locations: Locations) -> None:
    answered(history, date(2026, 11, 20), EARLIER)
    answered(history, date(2026, 11, 21), {**FIGURES, MODEL_KEY: "embedded"})
    answered(history, TODAY, {**EARLIER, "tokens": 7}, "abcdef0123456789")
    names = [model.name for model in read_report(history, locations, TODAY).models]
    assert names == ["built-in", "abcdef01"]


def test_stores_that_exist_are_listed_with_their_bytes(
    history: History, locations: Locations
) -> None:
    locations.states.mkdir(parents=True)
    (locations.states / "model.db").write_bytes(b"x" * 1000)
    sizes = {store.name: store.bytes for store in read_report(history, locations, TODAY).stores}
    assert sizes["contexts"] == 1000
    assert sizes["chats"] >= locations.history.stat().st_size
    assert "models" not in sizes


def drafted(version: int, compared: int, matched: int) -> dict[str, object]:
    """The figures of an answer that was drafted by a version of the draft model."""
    counts = {"draft_model_compared": compared, "draft_model_matched": matched}
    return {**FIGURES, DRAFT_MODEL_KEY: version, **counts}


def learn(locations: Locations, target: str, *figures: dict[str, float]) -> Versions:
    """Versions of a draft model with the gate's figures for each; they learned from one
    answer."""
    locations.replay.mkdir()
    with closing(ReplayBuffer.open(replay_path(locations, target), target, VOCABULARY)) as buffer:
        learned = (buffer.identity, buffer.add("chat:7", record()), buffer.last_removal)
    versions = Versions(locations.draft_models / target / "draft-model")
    for number, measured in enumerate(figures, 1):
        partial = versions.partial()
        (partial / DRAFT_MODEL_FILE).write_bytes(b"weights")
        created = datetime(2026, 11, 10 + number, 12).timestamp()
        mark = fingerprint(partial / DRAFT_MODEL_FILE)
        versions.publish(
            partial, Version(number, created, mark, "", number - 1, *learned, measured)
        )
    return versions


def test_versions_of_the_draft_model_are_reported_with_their_live_acceptance(
    history: History, locations: Locations
) -> None:
    learn(locations, "f" * 16, {"acceptance_before": 0.8, "acceptance": 0.85, "steps": 96.0})
    answered(history, TODAY, drafted(0, 100, 60))
    answered(history, TODAY, drafted(1, 100, 80))
    answered(history, TODAY, drafted(1, 100, 90))
    answered(history, TODAY, FIGURES)
    answered(history, TODAY, drafted(0, 100, 10), "other")
    other, draft_model = read_report(history, locations, TODAY).draft_models
    assert (draft_model.model, other.model) == ("built-in", "built-in")
    assert [(point.version, point.acceptance) for point in draft_model.curve] == [
        (0, 0.6),
        (1, 0.8),
        (1, 0.9),
    ]
    assert draft_model.live_acceptance(1) == pytest.approx(0.85)
    assert draft_model.live_acceptance(2) is None
    assert (draft_model.learning.current, draft_model.learning.answers) == (1, 1)
    assert draft_model.learning.versions[0].figures["steps"] == 96
    assert other.learning.versions == [], "nothing was learned for the other model"


def test_halted_learning_is_reported_with_its_reason(
    history: History, locations: Locations
) -> None:
    answered(history, TODAY, FIGURES)
    draft_model = learn(locations, "f" * 16)
    head = head_versions(locations, "f" * 16)
    head.partial()
    with closing(ReplayBuffer.existing(replay_path(locations, "f" * 16))) as buffer:
        identity = buffer.identity
    for fruitless, halted in ((2, ()), (3, ("no gain in the last 3 trainings (it costs)",))):
        head.note(Attempt(1.0, identity, 1, 0, "it costs", fruitless))
        report = read_report(history, locations, TODAY)
        assert report.halted == tuple(f"draft head of built-in: {line}" for line in halted)
        shown = " ".join(" ".join(line.plain for line in page(report, 50, STYLES)).split())
        assert ("Not learning for now" in shown) == bool(halted)
        assert ("it costs" in shown) == bool(halted)
    # Answers in another buffer do not count.
    head.note(Attempt(1.0, "other", 1, 0, "it costs", 3))
    assert read_report(history, locations, TODAY).halted == ()
    assert draft_model.all() == []


def test_each_training_without_a_gain_waits_for_twice_as_many_answers() -> None:
    needed = [NewAnswers(0, fruitless).needed for fruitless in range(6)]
    assert needed == [25, 25, 25, 50, 100, 200]
    assert NewAnswers(49, 3).missing == 1
    assert NewAnswers(50, 3).missing == 0


def test_without_a_draft_model_there_is_no_report_of_one(
    history: History, locations: Locations
) -> None:
    answered(history, TODAY, FIGURES)
    for counts in (
        {"draft_model_compared": 0},
        {"draft_model_compared": "9", "draft_model_matched": []},
    ):
        answered(history, TODAY, {**FIGURES, **counts})
    assert read_report(history, locations, TODAY).draft_models == ()


def test_short_answers_make_a_point_together_and_many_are_averaged() -> None:
    def usage(version: int, answers: int, compared: int) -> list[DraftModelUsage]:
        return [DraftModelUsage(TODAY, "", version, compared, compared // 2)] * answers

    short = acceptance_curve([*usage(0, 5, 20), *usage(1, 1, 10)])
    assert [(point.version, point.positions) for point in short] == [(0, 100), (1, 10)]
    many = acceptance_curve(usage(0, 3000, 100))
    assert 100 <= len(many) <= 120
    assert sum(point.positions for point in many) == 300_000


def test_what_is_read_is_of_now(history: History) -> None:
    began = time.time()
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "why?")
    history.add_message(chat, question.id, ASSISTANT, "so", statistics=FIGURES)
    [day] = daily_usage(history)
    assert day.day in {datetime.fromtimestamp(at).date() for at in (began, time.time())}
