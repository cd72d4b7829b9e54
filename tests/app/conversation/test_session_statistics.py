"""The panel's figures, against sums done by hand and against `Statistics`."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Flag

import pytest

from app.conversation.session_statistics import TREND_BUCKETS, TREND_SECONDS, SessionStatistics
from app.conversation.statistics import Statistics
from app.conversation.turn import Finished, Wrote
from engines.draft_tree import CHATS, PROMPT
from tests.app.interface.scripted import BUDGET_STATUS, Script, events_of, wrote

PASS = [("a", CHATS), ("b", PROMPT), ("c", 0)]
SCRIPT = Script([[("first", 0)], PASS, PASS, [("d", 0)]])


def observed(script: Script) -> tuple[SessionStatistics, Statistics]:
    figures, statistics = SessionStatistics(), Statistics()
    for event in events_of(script, Flag()):
        figures.observe(event, 100.0)
        if isinstance(event, Wrote):
            statistics.observe(event.step)
    return figures, statistics


def test_figures_of_an_answer_are_those_of_its_statistics() -> None:
    figures, statistics = observed(SCRIPT)
    assert figures.answer.tokens == statistics.tokens == 8
    assert figures.now.speed == pytest.approx(statistics.tokens_per_second)
    assert figures.answer.acceptance_rate == pytest.approx(statistics.acceptance_rate) == 4 / 6
    assert figures.shares == {"prompt": 2 / 8, "chats": 2 / 8}


def test_finished_brings_what_only_the_turn_knows() -> None:
    figures, _ = observed(SCRIPT)
    assert figures.answer.prompt_tokens == 12


def test_the_ratio_compares_the_same_tokens_at_the_same_places() -> None:
    slower = replace(BUDGET_STATUS, plain_seconds=0.1)
    figures = SessionStatistics()
    figures.observe(wrote(1, PASS, SCRIPT), 0.0)
    figures.observe(wrote(2, PASS, replace(SCRIPT, budget_status=slower)), 0.0)
    assert figures.now.ratio == pytest.approx((3 * 0.05 + 3 * 0.1) / 0.12)
    assert figures.now.ratio == pytest.approx(figures.now.speed / figures.now.plain_speed)


def test_the_token_of_the_prefill_has_no_speed() -> None:
    figures = SessionStatistics()
    figures.observe(wrote(0, [("first", 0)], SCRIPT), 0.0)
    assert figures.answer.tokens == 1
    assert figures.now.speed == 0
    assert figures.now.ratio == 0


def test_now_is_the_last_seconds_while_writing_and_the_answer_afterwards() -> None:
    figures = SessionStatistics()
    figures.observe(wrote(1, PASS, replace(SCRIPT, cycle=3.0)), 0.0)
    figures.observe(wrote(2, PASS, replace(SCRIPT, cycle=1.0)), 3.0)
    assert figures.now.speed == pytest.approx(3.0)
    figures.end()
    assert figures.now.speed == pytest.approx(6 / 4)


def test_a_new_answer_begins_anew_and_the_session_goes_on() -> None:
    figures, _ = observed(SCRIPT)
    for event in events_of(SCRIPT, Flag()):
        figures.observe(event, 200.0)
    assert figures.answers == 2
    assert figures.answer.tokens == 8
    assert figures.session.tokens == 14
    assert figures.saved_seconds == pytest.approx(2 * (6 * 0.05 + 0.0594 - 3 * 0.06))


def test_a_step_without_a_draft_was_plain_decoding_whatever_the_estimate() -> None:
    wrong = replace(BUDGET_STATUS, plain_seconds=1.0)
    figures = SessionStatistics()
    figures.observe(wrote(1, [("d", 0)], replace(SCRIPT, budget_status=wrong)), 0.0)
    assert figures.now.ratio == pytest.approx(0.99)


def test_an_answer_without_tokens_leaves_the_last_one_standing() -> None:
    figures, statistics = observed(SCRIPT)
    figures.observe(Finished("interrupted", Statistics(), 0), 300.0)
    assert figures.answer.tokens == statistics.tokens


def test_the_trend_has_a_value_for_each_part_with_calls() -> None:
    figures = SessionStatistics()
    part = TREND_SECONDS / TREND_BUCKETS
    figures.observe(wrote(1, PASS, SCRIPT), 0.0)
    figures.observe(wrote(2, [("d", 0)], SCRIPT), 2 * part)
    figures.observe(wrote(3, PASS, SCRIPT), 2 * part + 1)
    assert figures.trend() == [0.0] * (TREND_BUCKETS - 3) + [3.0, 0.0, 2.0]


def test_what_is_older_than_the_trend_is_forgotten() -> None:
    figures = SessionStatistics()
    figures.observe(wrote(1, PASS, SCRIPT), 0.0)
    figures.observe(wrote(2, [("d", 0)], SCRIPT), TREND_SECONDS + 1)
    assert figures.trend() == [0.0] * (TREND_BUCKETS - 1) + [1.0]


def test_drafts_are_counted_by_the_source_that_gets_the_credit() -> None:
    figures, _ = observed(SCRIPT)
    assert (figures.drafts["chats"].verified, figures.drafts["chats"].accepted) == (4, 2)
    assert (figures.drafts["prompt"].verified, figures.drafts["prompt"].accepted) == (2, 2)


def test_reset_figures_are_new_ones() -> None:
    figures, _ = observed(SCRIPT)
    assert figures != SessionStatistics()
    figures.reset()
    assert figures == SessionStatistics()
