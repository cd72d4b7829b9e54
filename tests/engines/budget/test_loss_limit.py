"""What drafting may lose is bounded, whatever was estimated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.budget.loss_limit import (
    INITIAL_PASSES,
    MAX_PASSES,
    MAX_PAUSE_STEPS,
    MAX_STAKE,
    MAX_WINNINGS,
    PASSES_PER_TOKEN,
    DrafterBackoff,
    LossLimiter,
)

EXTRA = 3.0


@given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 1)), max_size=200))
def test_rejected_drafts_lose_no_more_than_the_balance(
    drafts: list[tuple[float, float]],
) -> None:
    limiter, lost, largest = LossLimiter(), 0.0, 0.0
    for extra, probability in drafts:
        risked = extra if limiter.allows(extra, probability) else 0.0
        limiter.record(1, risked)
        lost += risked
        largest = max(largest, risked)
    # A confident draft may fail once; after that the balance is used up.
    assert lost <= INITIAL_PASSES + PASSES_PER_TOKEN * len(drafts) + largest


def test_what_was_won_may_be_lost_again() -> None:
    limiter = LossLimiter()
    assert not limiter.allows(EXTRA, 0.0)
    limiter.record(tokens=6, extra=EXTRA)
    assert limiter.allows(EXTRA, 0.0)
    for _ in range(100):
        limiter.record(tokens=6, extra=EXTRA)
    assert not limiter.allows(MAX_PASSES + 1.0, 0.0)


def test_a_confident_draft_is_allowed_where_a_doubtful_one_is_not() -> None:
    limiter = LossLimiter()
    assert limiter.allows(EXTRA, 0.9)
    assert not limiter.allows(EXTRA, 0.3)


def test_one_sure_draft_does_not_end_drafting_for_long() -> None:
    """However wide a pass is, it leaves a debt that the text pays off within a few sentences."""
    limiter, tokens = LossLimiter(), 0
    for extra in (18.0, 9.0, 4.0, 2.0, 1.0):
        if limiter.allows(extra, 0.99):
            limiter.record(tokens=1, extra=extra)
    while not limiter.allows(1.0, 0.99):
        limiter.record(tokens=1, extra=0.0)
        tokens += 1
    assert tokens <= (MAX_STAKE + 1.0) / PASSES_PER_TOKEN


def test_an_empty_balance_refills_with_the_text() -> None:
    limiter = LossLimiter()
    limiter.record(tokens=1, extra=INITIAL_PASSES)
    assert not limiter.allows(0.5, 0.0)
    for _ in range(round(1.0 / PASSES_PER_TOKEN)):
        limiter.record(tokens=1, extra=0.0)
    assert limiter.allows(0.5, 0.0)


def test_a_bad_drafter_is_consulted_seldom_but_never_dropped() -> None:
    backoff = DrafterBackoff()
    rate = 100.0
    consulted = 0
    for _ in range(1000):
        if backoff.should_consult():
            consulted += 1
            backoff.record(0.0, 0.01, rate)
    assert 1000 / (MAX_PAUSE_STEPS + 1) < consulted < 60
    for _ in range(MAX_PAUSE_STEPS + 1):
        if backoff.should_consult():
            backoff.record(60.0, 0.01, rate)
    assert backoff.should_consult()


@pytest.mark.parametrize("cost", [0.5, 1.5, 6.0])
def test_a_drafter_as_slow_as_the_target_loses_a_few_tokens(cost: float) -> None:
    backoff, lost = DrafterBackoff(), 0.0
    for _ in range(1000):
        if backoff.should_consult():
            lost += cost
            backoff.record(0.0, cost, 1.0)
    assert lost <= max(12.0, 6.0 * cost)


def test_a_drafter_that_wins_seldom_and_much_is_asked_again_soon() -> None:
    backoff, rate, pauses = DrafterBackoff(), 100.0, []
    for step in range(1000):
        if backoff.should_consult():
            backoff.record(12.0 if step % 120 < 6 else 0.0, 0.001, rate)
        pauses.append(backoff.pause)
    assert max(pauses[240:]) == 1


def test_reading_a_new_text_does_not_pause_a_drafter_that_pays() -> None:
    backoff, rate = DrafterBackoff(), 100.0
    for seconds in [*[0.001] * 20, 0.05]:
        backoff.record(0.12, seconds, rate)
    assert backoff.pause == 0


def test_a_slow_first_consultation_does_not_pause_a_drafter_that_pays() -> None:
    backoff, rate = DrafterBackoff(), 100.0
    for seconds in [0.05, *[0.001] * 20]:
        backoff.record(0.12, seconds, rate)
        assert backoff.pause == 0


def test_winnings_are_spent_in_the_end() -> None:
    backoff, rate, steps = DrafterBackoff(), 100.0, 0
    backoff.record(1000.0, 0.001, rate)
    while backoff.pause <= 1:
        if backoff.should_consult():
            backoff.record(0.0, 0.001, rate)
        steps += 1
    assert steps <= 2 * (MAX_WINNINGS / (0.001 * rate) + 100)
