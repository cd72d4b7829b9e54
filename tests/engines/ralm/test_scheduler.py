"""OS3: the paper's objectives, estimates over a window, and bounds that no stride exceeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.ralm.guess_accuracy import Runs
from engines.ralm.scheduler import WINDOW, Choice, FixedStride, OptimalStride, Verification
from engines.ralm.stride_rates import (
    MAX_STRIDE,
    Chances,
    StrideCosts,
    batch_rates,
    best_stride,
    hidden_rate,
    hidden_stride_s,
    rate,
    sequential_rate,
    speedup_bound,
)

SECONDS = st.floats(1e-4, 10)


def steady(accuracy: float) -> Chances:
    """γ is one number, and no passage has to be read."""
    return Chances(accuracy ** np.arange(MAX_STRIDE + 1.0), 0.0, 0.0)


def verified(queries: int, matched: int, seconds: float, *, new: bool = False) -> Verification:
    return Verification(queries, matched, seconds, [new] * queries)


def searched_first(scheduler: OptimalStride, seconds: float) -> None:
    """A stride for which nothing was guessed."""
    scheduler.verified(Verification(1, 0, seconds))


@given(st.floats(0, 0.99), SECONDS, SECONDS, st.booleans())
def test_the_best_stride_is_the_largest_rate(
    accuracy: float, stride_s: float, verify_s: float, asynchronous: bool
) -> None:
    stride = best_stride(accuracy, stride_s, verify_s, 0.0, asynchronous=asynchronous)
    rates = [
        rate(one, accuracy, stride_s, verify_s, asynchronous=asynchronous)
        for one in range(1, MAX_STRIDE + 1)
    ]
    assert rates[stride - 1] == max(rates)


@given(st.integers(1, MAX_STRIDE), st.floats(0, 1), SECONDS, SECONDS, st.booleans())
def test_no_rate_exceeds_the_bound(
    stride: int, accuracy: float, stride_s: float, verify_s: float, asynchronous: bool
) -> None:
    sequential = 1 / (stride_s + verify_s)
    gained = rate(stride, accuracy, stride_s, verify_s, asynchronous=asynchronous) / sequential
    bound = speedup_bound(stride, verify_s / stride_s, asynchronous=asynchronous)
    assert gained <= bound * (1 + 1e-6)


def test_the_papers_strides() -> None:
    # r = 17, γ = 0.95: 21 or so, where the paper's γ_max of 0.6 stays near 5.
    assert 18 <= best_stride(0.95, 1.0, 17.0, 0.0, asynchronous=False) <= 24
    assert 4 <= best_stride(0.6, 1.0, 17.0, 0.0, asynchronous=False) <= 7
    # A search that takes no time is verified at once.
    assert best_stride(0.6, 1.0, 0.01, 0.0, asynchronous=False) == 1
    assert speedup_bound(3, 17, asynchronous=False) == pytest.approx(2.7)
    assert speedup_bound(3, 0.5, asynchronous=True) == pytest.approx(1.5)


@given(
    st.lists(st.tuples(st.integers(1, 32), st.floats(0, 1), st.floats(0, 1e7)), max_size=30),
    st.booleans(),
)
def test_estimates_stay_in_bounds_whatever_happens(
    outcomes: list[tuple[int, float, float]], asynchronous: bool
) -> None:
    scheduler = OptimalStride(asynchronous=asynchronous)
    assert scheduler.stride == 1
    for queries, share, seconds in outcomes:
        scheduler.wrote(min(seconds, 1e6), new=False)
        scheduler.verified(verified(queries, int(queries * share), min(seconds, 1e6)))
        assert 0 <= scheduler.stride <= MAX_STRIDE
        assert 0 < scheduler.accuracy < 1


def test_it_learns_when_guesses_are_right_and_wrong() -> None:
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(20):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(scheduler.stride, scheduler.stride, 17.0))
    assert scheduler.accuracy > 0.95
    assert scheduler.stride > 15
    # However many hundreds were right, some wrong ones in a row are enough.
    strides = []
    for _ in range(16):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(max(scheduler.stride, 1), 0, 17.0))
        strides.append(scheduler.stride)
    assert strides == sorted(strides, reverse=True)
    assert scheduler.accuracy < 0.4
    assert scheduler.stride == 0


def test_after_a_long_run_of_right_guesses_hardly_any_is_wrong() -> None:
    runs = Runs(0.6)
    before = runs.chances(4).tolist()
    assert before == pytest.approx(
        np.cumprod([1, 1 - 0.8 / 2, 1 - 0.8 / 3, 1 - 0.8 / 4, 1 - 0.8 / 5])
    )
    # Every fifth is wrong, and the one after it.
    for _ in range(40):
        runs.add([True, True, True, False, False])
    after_wrong = runs.chances(4)
    assert (np.diff(after_wrong) <= 0).all()
    assert after_wrong[1] == pytest.approx(0.5, abs=0.1)
    runs.add([True])
    assert runs.chances(1)[1] > 0.85
    # Another answer begins as if one had been wrong.
    runs.begin()
    assert runs.chances(1)[1] == pytest.approx(0.5, abs=0.1)


def test_an_answer_whose_guesses_are_wrong_is_told_from_others() -> None:
    runs = Runs(0.8)
    runs.add([True] * 200)
    right = runs.chances(8)
    runs.begin()
    runs.add([False, True] * 5)
    worse = runs.chances(8)
    runs.begin()
    assert worse[8] < runs.chances(8)[8] < right[8]


def test_what_an_answer_tells_of_times_the_next_one_begins_with() -> None:
    scheduler = OptimalStride(asynchronous=False)
    searched_first(scheduler, 20.0)
    scheduler.wrote(1.0, new=False)
    scheduler.verified(verified(5, 5, 20.0))
    scheduler.begin()
    assert scheduler.stride > 8
    unused = OptimalStride(asynchronous=False)
    unused.begin()
    assert unused.stride == 1


@given(st.floats(0, 1), SECONDS, SECONDS)
def test_wrong_guesses_cost_at_least_what_the_paper_says(
    accuracy: float, stride_s: float, verify_s: float
) -> None:
    costs = StrideCosts(stride_s, verify_s, 0.0, stride_s)
    rates = batch_rates(steady(accuracy), costs).tolist()
    paper = [
        rate(stride, accuracy, stride_s, verify_s, asynchronous=False)
        for stride in range(1, MAX_STRIDE + 1)
    ]
    assert all(ours <= theirs * (1 + 1e-6) for ours, theirs in zip(rates, paper, strict=True))
    # Right guesses cost what the paper says, and searching first is RaLMSeq.
    right = batch_rates(steady(1.0), costs)
    assert right.tolist() == pytest.approx(
        [
            rate(stride, 1.0, stride_s, verify_s, asynchronous=False)
            for stride in range(1, MAX_STRIDE + 1)
        ]
    )
    assert sequential_rate(costs) == pytest.approx(1 / (stride_s + verify_s))


@given(SECONDS, SECONDS)
def test_a_batch_of_strides_that_are_all_searched_first_is_the_sequential_one(
    stride_s: float, verify_s: float
) -> None:
    costs = StrideCosts(stride_s, verify_s / 2, verify_s / 2, stride_s)
    first = batch_rates(replace(steady(0.0), first=1.0), costs)
    assert first.tolist() == pytest.approx([sequential_rate(costs)] * MAX_STRIDE)


def test_what_is_read_in_vain_counts() -> None:
    costs = StrideCosts(stride_s=1.0, base_s=3.0, query_s=0.5, reading_s=6.0)
    chances = Chances(np.array([1.0, 0.5, 0.25]), new=0.4, first=0.0)
    # One stride: its search 3.5, writing 1, in half of the cases again 1 and .4 × 5 in vain. Of
    # two, 1.5 are confirmed, and 1.25 were written in vain.
    assert batch_rates(chances, costs).tolist() == pytest.approx([1 / 6, 1.5 / 9.25])
    # Beside a search, .4 × (6 − 3.5) in vain.
    assert hidden_rate(chances, costs, 4.0) == pytest.approx(1 / (0.5 * 4.0 + 0.5 * 5.5))


def test_a_wrong_guess_whose_truth_needs_no_writing_costs_what_it_took_alone() -> None:
    costs = StrideCosts(stride_s=1.0, base_s=3.0, query_s=0.5, reading_s=0.0)
    chances = Chances(np.array([1.0, 0.5, 0.25]), new=0.4, first=0.0)
    assert batch_rates(chances, costs).tolist() == pytest.approx([1 / 4.5, 1.5 / 6.0])


def test_what_is_hidden_is_bounded_by_the_search_before_it_is_measured() -> None:
    assert hidden_stride_s(StrideCosts(1.0, 0.0, 0.0, 9.0)) == 1.0
    assert hidden_stride_s(StrideCosts(1.0, 0.0, 1.0, 9.0)) == 1.5
    # Several strides share a search that is longer than one.
    assert hidden_stride_s(StrideCosts(1.0, 2.0, 0.0, 9.0)) < 2.0


def test_where_guesses_are_wrong_it_searches_first_until_they_are_right() -> None:
    scheduler = OptimalStride(asynchronous=False)
    for at in range(60):
        if scheduler.stride:
            scheduler.wrote(1.0, new=False)
            scheduler.wrote(1.0, new=True)
            right = scheduler.stride * (at > 20)
            scheduler.verified(verified(scheduler.stride, right, 5.0))
        else:
            assert scheduler.guesses, "they are compared with what is found"
            scheduler.verified(verified(1, int(at > 20), 5.0))
            scheduler.wrote(1.0, new=False)
        assert at != 20 or scheduler.stride == 0
    assert scheduler.stride > 8


def test_where_searching_is_nearly_free_nothing_is_guessed_until_it_is_not() -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, 0.01)
    scheduler.wrote(3.0, new=True)
    for _ in range(20):
        assert (scheduler.stride, scheduler.guesses) == (0, False)
        searched_first(scheduler, 0.01)
        scheduler.wrote(1.0, new=False)
    searched_first(scheduler, 17.0)
    scheduler.wrote(1.0, new=False)
    assert scheduler.guesses


def test_where_nothing_is_guessed_that_is_weighed_only_every_few_searches(
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
        assert not scheduler.guesses
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
    assert scheduler.reads_ahead == reads


def test_a_verification_that_costs_by_the_query_is_not_put_off() -> None:
    # On few cores a batch costs as much as its queries one by one: nothing is gained by waiting.
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(12):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(scheduler.stride, scheduler.stride, 5.0 * scheduler.stride))
    constant = OptimalStride(asynchronous=False)
    for _ in range(12):
        constant.wrote(1.0, new=False)
        constant.verified(verified(constant.stride, constant.stride, 5.0))
    assert constant.stride > 8
    assert scheduler.stride < constant.stride


def test_the_papers_bound_on_the_accuracy() -> None:
    scheduler = OptimalStride(asynchronous=False, max_accuracy=0.6)
    for _ in range(20):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(scheduler.stride, scheduler.stride, 17.0))
    assert scheduler.accuracy == 0.6
    assert scheduler.stride <= 7


@pytest.mark.parametrize(("lookup_s", "guesses"), [(0.01, True), (0.5, False)])
def test_nothing_is_guessed_where_that_takes_as_long_as_a_search(
    lookup_s: float, guesses: bool
) -> None:
    scheduler = OptimalStride(asynchronous=False)
    searched_first(scheduler, 0.5)
    scheduler.wrote(3.0, new=True)
    for _ in range(8):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(Verification(1, 1, 0.5, [False], lookup_s=lookup_s))
    assert scheduler.guesses == guesses


def test_each_answer_writes_a_stride_with_no_search_beside_it() -> None:
    scheduler = OptimalStride(asynchronous=True)
    searched_first(scheduler, 1.0)
    scheduler.wrote(3.0, new=True)
    for _ in range(4):
        scheduler.wrote(1.0, new=False)
        scheduler.verified(verified(1, 1, 1.0))
    assert scheduler.hides
    scheduler.begin()
    assert not scheduler.hides
    # A search after a prompt was read tells nothing of those between strides.
    searched_first(scheduler, 50.0)
    scheduler.wrote(3.0, new=True)
    assert not scheduler.hides
    scheduler.wrote(1.0, new=False)
    assert scheduler.hides


def test_a_fixed_stride_stays() -> None:
    scheduler = FixedStride(4)
    scheduler.wrote(1.0, new=False)
    scheduler.verified(verified(4, 0, 9.0))
    assert scheduler.stride == 4


def test_the_first_stride_tells_how_far_to_write_ahead() -> None:
    for search_s, strides in ((17.0, range(2, 9)), (0.1, range(1))):
        scheduler = OptimalStride(asynchronous=False)
        searched_first(scheduler, search_s)
        scheduler.wrote(3.0, new=True)
        assert scheduler.stride in strides
        scheduler.wrote(1.0, new=False)
        assert scheduler.stride in strides


def test_the_first_batch_is_longer_where_guesses_are_known_to_be_right() -> None:
    first = []
    for accuracy in (0.6, 0.95):
        scheduler = OptimalStride(asynchronous=False, prior_accuracy=accuracy)
        scheduler.wrote(1.0, new=False)
        searched_first(scheduler, 12.0)
        first.append(scheduler.stride)
    assert 2 <= first[0] < first[1] / 2


def test_strides_that_share_a_pass_share_its_time() -> None:
    chosen = []
    for seconds in ([2.0, 2.0, 2.0], [6.0, 0.0, 0.0]):
        scheduler = OptimalStride(asynchronous=False)
        searched_first(scheduler, 4.0)
        for one in 5 * seconds:
            scheduler.wrote(one, new=False)
        chosen.append(scheduler.stride)
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
        rounds.append(scheduler.hides)
        if scheduler.hides:
            beside = 1.0 + 0.5 * overlap
            scheduler.verified(Verification(1, 1, 0.5, [False], True, beside))
        else:
            queries = max(scheduler.stride, 1)
            scheduler.verified(verified(queries, queries, 0.5 * queries))
            scheduler.wrote(1.0, new=False)
    assert any(rounds), "it is tried"
    assert scheduler.hides == hides
