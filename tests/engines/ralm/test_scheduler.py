"""OS3: the paper's objectives, our estimates, and the bounds of the speed-up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.ralm.guess_accuracy import Runs
from engines.ralm.scheduler import WINDOW, Choice, OptimalStride, Verification
from engines.ralm.stride_rates import (
    MAX_STRIDE,
    Chances,
    StrideCosts,
    batch_rates,
    hidden_rate,
    hidden_stride_s,
    sequential_rate,
)

SECONDS = st.floats(1e-4, 10)


def steady(accuracy: float) -> Chances:
    """Chances with a constant γ and without prefills."""
    return Chances(accuracy ** np.arange(MAX_STRIDE + 1.0), 0.0, 0.0)


def verified(queries: int, matched: int, seconds: float, *, new: bool = False) -> Verification:
    return Verification(queries, matched, seconds, [new] * queries)


def searched_first(scheduler: OptimalStride, seconds: float) -> None:
    """Report a stride that was searched first, without a guess."""
    scheduler.verified(Verification(1, 0, seconds))


@given(
    st.lists(st.tuples(st.integers(1, 32), st.floats(0, 1), st.floats(0, 1e7)), max_size=30),
    st.booleans(),
)
def test_estimates_stay_in_bounds_whatever_happens(
    outcomes: list[tuple[int, float, float]], asynchronous: bool
) -> None:
    scheduler = OptimalStride(asynchronous=asynchronous)
    assert scheduler.choice.stride == 1
    for queries, share, seconds in outcomes:
        scheduler.wrote(min(seconds, 1e6), new=False)
        scheduler.verified(verified(queries, int(queries * share), min(seconds, 1e6)))
        assert 0 <= scheduler.choice.stride <= MAX_STRIDE
        assert 0 < scheduler.accuracy < 1


def test_it_learns_when_guesses_are_right_and_wrong() -> None:
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(20):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(scheduler.choice.stride, scheduler.choice.stride, 17.0))
    assert scheduler.accuracy > 0.95
    assert scheduler.choice.stride > 15
    # However many were right, a few wrong ones in a row suffice.
    strides = []
    for _ in range(16):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(max(scheduler.choice.stride, 1), 0, 17.0))
        strides.append(scheduler.choice.stride)
    assert strides == sorted(strides, reverse=True)
    assert scheduler.accuracy < 0.4
    assert scheduler.choice.stride == 0


def test_after_a_long_run_of_right_guesses_hardly_any_is_wrong() -> None:
    runs = Runs(0.6)
    before = runs.chances(4).tolist()
    assert before == pytest.approx(
        np.cumprod([1, 1 - 0.8 / 2, 1 - 0.8 / 3, 1 - 0.8 / 4, 1 - 0.8 / 5])
    )
    # Of every five guesses, two in a row are wrong.
    for _ in range(40):
        runs.add([True, True, True, False, False])
    after_wrong = runs.chances(4)
    assert (np.diff(after_wrong) <= 0).all()
    assert after_wrong[1] == pytest.approx(0.5, abs=0.1)
    runs.add([True])
    assert runs.chances(1)[1] > 0.85
    # A new answer starts as after a wrong guess.
    runs.begin()
    assert runs.chances(1)[1] == pytest.approx(0.5, abs=0.1)


def test_a_hard_answer_lowers_only_its_own_chances() -> None:
    runs = Runs(0.8)
    runs.add([True] * 200)
    right = runs.chances(8)
    runs.begin()
    runs.add([False, True] * 5)
    worse = runs.chances(8)
    runs.begin()
    assert worse[8] < runs.chances(8)[8] < right[8]


def test_estimates_carry_over_between_answers() -> None:
    scheduler = OptimalStride(asynchronous=False)
    searched_first(scheduler, 20.0)
    scheduler.wrote(1.0, new=False)
    scheduler.verified(verified(5, 5, 20.0))
    scheduler.begin()
    assert scheduler.choice.stride > 8
    unused = OptimalStride(asynchronous=False)
    unused.begin()
    assert unused.choice.stride == 1


@given(SECONDS, SECONDS)
def test_batches_searched_first_are_ralm_seq(stride_s: float, verify_s: float) -> None:
    costs = StrideCosts(stride_s, verify_s / 2, verify_s / 2, stride_s)
    first = batch_rates(replace(steady(0.0), first=1.0), costs)
    assert first.tolist() == pytest.approx([sequential_rate(costs)] * MAX_STRIDE)


def test_prefill_of_mispredicted_passages_counts() -> None:
    costs = StrideCosts(stride_s=1.0, base_s=3.0, query_s=0.5, reading_s=6.0)
    chances = Chances(np.array([1.0, 0.5, 0.25]), new=0.4, first=0.0)
    # One stride: its search 3.5, writing 1, and in half of the cases another 1 and .4 × 5 wasted.
    # Of two, 1.5 are confirmed and 1.25 wasted.
    assert batch_rates(chances, costs).tolist() == pytest.approx([1 / 6, 1.5 / 9.25])
    # Overlapped with a search, .4 × (6 − 3.5) is wasted.
    assert hidden_rate(chances, costs, 4.0) == pytest.approx(1 / (0.5 * 4.0 + 0.5 * 5.5))


def test_a_misprediction_whose_truth_needs_no_writing_costs_only_its_own_time() -> None:
    costs = StrideCosts(stride_s=1.0, base_s=3.0, query_s=0.5, reading_s=0.0)
    chances = Chances(np.array([1.0, 0.5, 0.25]), new=0.4, first=0.0)
    assert batch_rates(chances, costs).tolist() == pytest.approx([1 / 4.5, 1.5 / 6.0])


def test_the_prior_of_hidden_strides_is_bounded_by_the_search() -> None:
    assert hidden_stride_s(StrideCosts(1.0, 0.0, 0.0, 9.0)) == 1.0
    assert hidden_stride_s(StrideCosts(1.0, 0.0, 1.0, 9.0)) == 1.5
    # Several strides share a search that takes longer than one.
    assert hidden_stride_s(StrideCosts(1.0, 2.0, 0.0, 9.0)) < 2.0


def test_where_guesses_are_wrong_it_searches_first_until_they_are_right() -> None:
    scheduler = OptimalStride(asynchronous=False)
    for at in range(60):
        if scheduler.choice.stride:
            scheduler.wrote(1.0, new=False)
            scheduler.wrote(1.0, new=True)
            right = scheduler.choice.stride * (at > 20)
            scheduler.verified(verified(scheduler.choice.stride, right, 5.0))
        else:
            assert scheduler.choice.guesses, "guesses are made to measure their accuracy"
            scheduler.verified(verified(1, int(at > 20), 5.0))
            scheduler.wrote(1.0, new=False)
        assert at != 20 or scheduler.choice.stride == 0
    assert scheduler.choice.stride > 8


def test_nothing_is_guessed_while_searching_is_nearly_free() -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, 0.01)
    scheduler.wrote(3.0, new=True)
    for _ in range(20):
        assert (scheduler.choice.stride, scheduler.choice.guesses) == (0, False)
        searched_first(scheduler, 0.01)
        scheduler.wrote(1.0, new=False)
    searched_first(scheduler, 17.0)
    scheduler.wrote(1.0, new=False)
    assert scheduler.choice.guesses


def test_the_decision_not_to_guess_is_revised_only_every_few_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, weighed = OptimalStride(asynchronous=True), 0
    choose = scheduler._choose

    def counted() -> Choice:
        nonlocal weighed
        weighed += 1
        return choose()

    monkeypatch.setattr(scheduler, "_choose", counted)
    for _ in range(10 * WINDOW):
        searched_first(scheduler, 0.01)
        scheduler.wrote(1.0, new=False)
        assert not scheduler.choice.guesses
    assert weighed == pytest.approx(10, abs=1)


@pytest.mark.parametrize(
    ("search_s", "right", "reads"), [(6.0, 1, True), (6.0, 0, False), (30.0, 0, True)]
)
def test_a_passage_is_read_ahead_only_if_a_search_takes_longer_than_the_risk(
    search_s: float, right: int, reads: bool
) -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, search_s)
    scheduler.wrote(10.0, new=True)
    for _ in range(4):
        scheduler.verified(verified(1, right, search_s, new=True))
        scheduler.wrote(10.0, new=True)
        scheduler.verified(verified(1, 1, search_s))
        scheduler.wrote(1.0, new=False)
    assert scheduler.choice.reads_ahead == reads


def test_verification_at_a_cost_per_query_is_not_postponed() -> None:
    # On few cores a batch costs as much as its single queries, so waiting gains nothing.
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(12):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(
            verified(
                scheduler.choice.stride, scheduler.choice.stride, 5.0 * scheduler.choice.stride
            )
        )
    constant = OptimalStride(asynchronous=False)
    for _ in range(12):
        constant.wrote(1.0, new=False)
        constant.verified(verified(constant.choice.stride, constant.choice.stride, 5.0))
    assert constant.choice.stride > 8
    assert scheduler.choice.stride < constant.choice.stride


@pytest.mark.parametrize(("lookup_s", "guesses"), [(0.01, True), (0.5, False)])
def test_nothing_is_guessed_if_lookups_take_as_long_as_searches(
    lookup_s: float, guesses: bool
) -> None:
    scheduler = OptimalStride(asynchronous=False)
    searched_first(scheduler, 0.5)
    scheduler.wrote(3.0, new=True)
    for _ in range(8):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(Verification(1, 1, 0.5, [False], lookup_s=lookup_s))
    assert scheduler.choice.guesses == guesses


def test_each_answer_writes_a_stride_without_a_search() -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, 1.0)
    scheduler.wrote(3.0, new=True)
    for _ in range(4):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(1, 1, 1.0))
    assert scheduler.choice.hides
    scheduler.begin()
    assert not scheduler.choice.hides
    # A search after a prefill says nothing about those between strides.
    searched_first(scheduler, 50.0)
    scheduler.wrote(3.0, new=True)
    assert not scheduler.choice.hides
    scheduler.wrote(1.0, new=False)
    assert scheduler.choice.hides


def test_the_first_stride_decides_the_first_batch() -> None:
    for search_s, strides in ((17.0, range(2, 9)), (0.1, range(1))):
        scheduler = OptimalStride(asynchronous=False)
        searched_first(scheduler, search_s)
        scheduler.wrote(3.0, new=True)
        assert scheduler.choice.stride in strides
        scheduler.wrote(1.0, new=False)
        assert scheduler.choice.stride in strides


def test_the_first_batch_is_longer_where_guesses_are_known_to_be_right() -> None:
    first = []
    for accuracy in (0.6, 0.95):
        scheduler = OptimalStride(asynchronous=False, prior_accuracy=accuracy)
        scheduler.wrote(1.0, new=False)
        searched_first(scheduler, 12.0)
        first.append(scheduler.choice.stride)
    assert 2 <= first[0] < first[1] / 2


def test_strides_that_share_a_pass_share_its_time() -> None:
    chosen = []
    for seconds in ([2.0, 2.0, 2.0], [6.0, 0.0, 0.0]):
        scheduler = OptimalStride(asynchronous=False)
        searched_first(scheduler, 4.0)
        for one in 5 * seconds:
            scheduler.wrote(one, new=False)
        chosen.append(scheduler.choice.stride)
    assert chosen[0] == pytest.approx(chosen[1], abs=1)
    assert chosen[0] < MAX_STRIDE / 2


@pytest.mark.parametrize(
    ("overlap", "hides"), [(0.0, True), (0.3, True), (1.0, False), (1.6, False)]
)
def test_a_search_is_hidden_only_where_that_does_not_slow_the_writing(
    overlap: float, hides: bool
) -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, 0.5)
    scheduler.wrote(1.0, new=True)
    rounds = []
    for _ in range(20):
        rounds.append(scheduler.choice.hides)
        if scheduler.choice.hides:
            beside = 1.0 + 0.5 * overlap
            scheduler.verified(Verification(1, 1, 0.5, [False], True, beside))
        else:
            queries = max(scheduler.choice.stride, 1)
            scheduler.verified(verified(queries, queries, 0.5 * queries))
            scheduler.wrote(1.0, new=False)
    assert any(rounds), "overlap is tried"
    assert scheduler.choice.hides == hides
