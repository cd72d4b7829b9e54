"""What drafting may lose is bounded, whatever was promised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.budget.loss_limit import MOST, SHARE, START, LossLimiter
from engines.budget.selection import affordable

EXTRA = 3.0


@given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 1)), max_size=200))
def test_passes_that_win_nothing_lose_no_more_than_the_purse_held(
    drafts: list[tuple[float, float]],
) -> None:
    purse, lost, largest = LossLimiter(), 0.0, 0.0
    for extra, chance in drafts:
        risked = extra if purse.covers(extra, chance) else 0.0
        purse.settle(1, risked)
        lost += risked
        largest = max(largest, risked)
    # A sure draft may fail once; after that the purse is empty.
    assert lost <= START + SHARE * len(drafts) + largest


def test_what_was_won_may_be_risked_again() -> None:
    purse = LossLimiter()
    assert not purse.covers(EXTRA, 0.0)
    purse.settle(tokens=6, extra=EXTRA)
    assert purse.covers(EXTRA, 0.0)
    for _ in range(100):
        purse.settle(tokens=6, extra=EXTRA)
    assert not purse.covers(MOST + 1.0, 0.0)


def test_a_sure_draft_is_covered_where_a_doubtful_one_is_not() -> None:
    purse = LossLimiter()
    assert purse.covers(EXTRA, 0.9)
    assert not purse.covers(EXTRA, 0.3)


def test_no_more_rows_are_verified_than_are_covered() -> None:
    table = [0.0, 1.0, 2.0, 4.0, 4.5]
    assert affordable(3, [0.9, 0.8, 0.7], table, LossLimiter()) == 3
    assert affordable(3, [0.9, 0.2, 0.1], table, LossLimiter()) == 1
    assert affordable(3, [0.9, 0.2, 0.1], [0.0, 1.0, 5.0, 6.0, 7.0], LossLimiter()) == 1
    assert affordable(3, [0.3, 0.2, 0.1], [0.0, 1.0, 5.0, 6.0, 7.0], LossLimiter()) == 0


def test_an_empty_purse_fills_with_the_text() -> None:
    purse = LossLimiter()
    purse.settle(tokens=1, extra=START)
    assert not purse.covers(0.5, 0.0)
    for _ in range(round(1.0 / SHARE)):
        purse.settle(tokens=1, extra=0.0)
    assert purse.covers(0.5, 0.0)
