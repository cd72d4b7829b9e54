"""The session statistics, against sums done by hand and against `Statistics`."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Flag

import pytest

from app.conversation.events import Finished, Wrote
from app.conversation.session_statistics import TREND_BUCKETS, TREND_SECONDS, SessionStatistics
from app.conversation.statistics import Statistics
from engines.draft_tree import CHATS, PROMPT
from tests.app.interface.scripted import BUDGET_STATUS, Script, events_of, wrote

PASS = [("a", CHATS), ("b", PROMPT), ("c", 0)]
SCRIPT = Script([[("first", 0)], PASS, PASS, [("d", 0)]])


def observed(script: Script) -> tuple[SessionStatistics, Statistics]:
    session, statistics = SessionStatistics(), Statistics()
    for event in events_of(script, Flag()):
        session.observe(event, 100.0)
        if isinstance(event, Wrote):
            statistics.observe(event.step)
    return session, statistics


def test_figures_of_an_answer_are_those_of_its_statistics() -> None:
    session, statistics = observed(SCRIPT)
    assert session.answer.tokens == statistics.tokens == 8
    assert session.current.speed == pytest.approx(statistics.tokens_per_second)
    assert session.answer.acceptance_rate == pytest.approx(statistics.acceptance_rate) == 1.0
    assert session.shares == {"prompt": 2 / 8, "chats": 2 / 8}


def test_finished_brings_what_only_the_turn_knows() -> None:
    session, _ = observed(SCRIPT)
    assert session.answer.prompt_tokens == 12


def test_the_ratio_compares_the_same_tokens_at_the_same_places() -> None:
    slower = replace(BUDGET_STATUS, plain_seconds=0.055)
    session = SessionStatistics()
    session.observe(wrote(1, PASS, SCRIPT), 0.0)
    session.observe(wrote(2, PASS, replace(SCRIPT, budget_status=slower)), 0.0)
    assert session.current.ratio == pytest.approx((3 * 0.05 + 3 * 0.055) / 0.12)
    assert session.current.ratio == pytest.approx(
        session.current.speed / session.current.plain_speed
    )


def test_the_token_of_the_prefill_has_no_speed() -> None:
    session = SessionStatistics()
    session.observe(wrote(0, [("first", 0)], SCRIPT), 0.0)
    assert session.answer.tokens == 1
    assert session.current.speed == 0
    assert session.current.ratio == 0


def test_now_is_the_last_seconds_while_writing_and_the_answer_afterwards() -> None:
    session = SessionStatistics()
    session.observe(wrote(1, PASS, replace(SCRIPT, step_s=3.0)), 0.0)
    session.observe(wrote(2, PASS, replace(SCRIPT, step_s=1.0)), 3.0)
    assert session.current.speed == pytest.approx(3.0)
    session.end()
    assert session.current.speed == pytest.approx(6 / 4)


def test_a_new_answer_begins_anew_and_the_session_goes_on() -> None:
    session, _ = observed(SCRIPT)
    for event in events_of(SCRIPT, Flag()):
        session.observe(event, 200.0)
    assert session.answers == 2
    assert session.answer.tokens == 8
    assert (session.session.tokens, session.session_tokens) == (14, 16)
    assert session.saved_seconds == pytest.approx(2 * (6 * 0.05 + 0.0594 - 3 * 0.06))


def test_a_step_without_a_draft_was_plain_decoding_whatever_the_estimate() -> None:
    wrong = replace(BUDGET_STATUS, plain_seconds=1.0)
    session = SessionStatistics()
    session.observe(wrote(1, [("d", 0)], replace(SCRIPT, budget_status=wrong)), 0.0)
    assert session.current.ratio == pytest.approx(0.99)


def test_an_answer_without_tokens_leaves_the_last_one_standing() -> None:
    session, statistics = observed(SCRIPT)
    session.observe(Finished("interrupted", Statistics(), 0), 300.0)
    assert session.answer.tokens == statistics.tokens


def test_the_trend_has_a_value_for_each_part_with_calls() -> None:
    session = SessionStatistics()
    part = TREND_SECONDS / TREND_BUCKETS
    session.observe(wrote(1, PASS, SCRIPT), 0.0)
    session.observe(wrote(2, [("d", 0)], SCRIPT), 2 * part)
    session.observe(wrote(3, PASS, SCRIPT), 2 * part + 1)
    assert session.trend() == [0.0] * (TREND_BUCKETS - 3) + [3.0, 0.0, 2.0]


def test_what_is_older_than_the_trend_is_forgotten() -> None:
    session = SessionStatistics()
    session.observe(wrote(1, PASS, SCRIPT), 0.0)
    session.observe(wrote(2, [("d", 0)], SCRIPT), TREND_SECONDS + 1)
    assert session.trend() == [0.0] * (TREND_BUCKETS - 1) + [1.0]


def test_reset_figures_are_new_ones() -> None:
    session, _ = observed(SCRIPT)
    assert session != SessionStatistics()
    session.reset()
    assert session == SessionStatistics()
