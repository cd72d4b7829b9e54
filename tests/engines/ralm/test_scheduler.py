"""OS3: the paper's objectives, estimates over a window, and bounds that no stride exceeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.ralm.scheduler import (
    MAX_STRIDE,
    FixedStride,
    HiddenStride,
    OptimalStride,
    StrideCosts,
    Verification,
    best_stride,
    full_rates,
    rate,
    sequential_rate,
    speedup_bound,
)

SECONDS = st.floats(1e-4, 10)


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
        scheduler.wrote(min(seconds, 1e6), changed=False)
        scheduler.verified(Verification(queries, int(queries * share), min(seconds, 1e6)))
        assert 0 <= scheduler.stride <= MAX_STRIDE
        assert 0 < scheduler.accuracy < 1


def test_it_learns_when_guesses_are_right_and_wrong() -> None:
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(20):
        scheduler.wrote(1.0, changed=False)
        scheduler.verified(Verification(scheduler.stride, scheduler.stride, 17.0))
    assert scheduler.accuracy > 0.95
    assert scheduler.stride > 15
    for _ in range(8):
        scheduler.wrote(1.0, changed=False)
        scheduler.verified(Verification(scheduler.stride, 0, 17.0))
    assert scheduler.accuracy < 0.4
    assert scheduler.stride <= 4


@given(st.floats(0, 1), SECONDS, SECONDS, SECONDS, st.floats(0, 2), st.booleans())
def test_wrong_guesses_cost_at_least_what_the_paper_says(
    accuracy: float,
    stride_s: float,
    verify_s: float,
    rewrite_s: float,
    overlap: float,
    hides: bool,
) -> None:
    costs = StrideCosts(stride_s, verify_s, 0.0, rewrite_s, overlap)
    rates = full_rates(accuracy, costs, MAX_STRIDE, hides=hides)
    for stride, ours in enumerate(rates.tolist(), start=1):
        paper = rate(stride, accuracy, stride_s, verify_s, asynchronous=hides)
        assert ours <= paper * (1 + 1e-6) or hides
    # Right guesses cost what the paper says, and searching first is RaLMSeq.
    right = full_rates(
        1.0, StrideCosts(stride_s, verify_s, 0.0, rewrite_s), MAX_STRIDE, hides=hides
    )
    assert right.tolist() == pytest.approx(
        [
            rate(stride, 1.0, stride_s, verify_s, asynchronous=hides)
            for stride in range(1, MAX_STRIDE + 1)
        ]
    )
    assert sequential_rate(1.0, costs) == pytest.approx(1 / (stride_s + verify_s))


def test_where_guesses_are_wrong_it_searches_first_until_they_are_right() -> None:
    scheduler = OptimalStride(asynchronous=True)
    for at in range(60):
        if scheduler.stride:
            scheduler.wrote(1.0, changed=False)
            scheduler.wrote(1.0, changed=True)
            right = scheduler.stride * (at > 20)
            scheduler.verified(Verification(scheduler.stride, right, 5.0))
        else:
            assert scheduler.guesses, "they are compared with what is found"
            scheduler.retrieved(5.0, at > 20)
            scheduler.wrote(1.0, changed=False)
        assert at != 20 or scheduler.stride == 0
    assert scheduler.stride > 8
    assert not scheduler.hides, "a search of five strides is not hidden behind one"


def test_where_searching_is_nearly_free_nothing_is_guessed_until_it_is_not() -> None:
    scheduler = OptimalStride(asynchronous=True)
    scheduler.began(0.01, 3.0)
    for _ in range(20):
        assert (scheduler.stride, scheduler.guesses) == (0, False)
        scheduler.retrieved(0.01, None)
        scheduler.wrote(1.0, changed=False)
    scheduler.retrieved(17.0, None)
    scheduler.wrote(1.0, changed=False)
    assert scheduler.guesses


def test_a_verification_that_costs_by_the_query_is_not_put_off() -> None:
    # On few cores a batch costs as much as its queries one by one: nothing is gained by waiting.
    scheduler = OptimalStride(asynchronous=False)
    for _ in range(12):
        scheduler.wrote(1.0, changed=False)
        scheduler.verified(Verification(scheduler.stride, scheduler.stride, 5.0 * scheduler.stride))
    constant = OptimalStride(asynchronous=False)
    for _ in range(12):
        constant.wrote(1.0, changed=False)
        constant.verified(Verification(constant.stride, constant.stride, 5.0))
    assert constant.stride > 8
    assert scheduler.stride < constant.stride


def test_the_papers_bound_on_the_accuracy() -> None:
    scheduler = OptimalStride(asynchronous=False, max_accuracy=0.6)
    for _ in range(20):
        scheduler.wrote(1.0, changed=False)
        scheduler.verified(Verification(scheduler.stride, scheduler.stride, 17.0))
    assert scheduler.accuracy == 0.6
    assert scheduler.stride <= 7


def test_a_fixed_stride_stays() -> None:
    scheduler = FixedStride(4)
    scheduler.wrote(1.0, changed=False)
    scheduler.verified(Verification(4, 0, 9.0))
    assert scheduler.stride == 4


def test_the_first_stride_tells_how_far_to_write_ahead() -> None:
    for search_s, strides in ((17.0, range(3, 9)), (0.1, range(1))):
        scheduler = OptimalStride(asynchronous=False)
        scheduler.began(search_s, 3.0)
        assert scheduler.stride in strides
        scheduler.wrote(1.0, changed=False)
        assert scheduler.stride in strides


def test_a_search_is_hidden_only_where_that_does_not_slow_the_writing() -> None:
    for overlap, hides in ((0.0, True), (0.3, True), (1.0, False), (1.6, False)):
        scheduler = OptimalStride(asynchronous=True)
        scheduler.began(0.5, 1.0)
        rounds = []
        for _ in range(20):
            rounds.append(scheduler.hides)
            beside = HiddenStride(1.0, 1.0 + 0.5 * overlap, whole=True)
            if scheduler.stride or scheduler.hides:
                if scheduler.stride:
                    scheduler.wrote(1.0, changed=False)
                queries = max(scheduler.stride, 1)
                hidden = beside if scheduler.hides else None
                scheduler.verified(Verification(queries, queries, 0.5 * queries, hidden))
            else:
                scheduler.retrieved(0.5, True)
                scheduler.wrote(1.0, changed=False)
        assert any(rounds), "it is tried"
        assert scheduler.hides == hides


def test_a_stride_that_changed_its_passage_tells_nothing_of_hiding() -> None:
    scheduler = OptimalStride(asynchronous=True)
    scheduler.began(0.5, 1.0)
    for _ in range(20):
        if scheduler.hides:
            slow = HiddenStride(9.0, 9.0, whole=False)
            scheduler.verified(Verification(max(scheduler.stride, 1), 1, 0.5, slow))
        else:
            scheduler.retrieved(0.5, True)
            scheduler.wrote(1.0, changed=False)
    assert scheduler.hides
    assert scheduler.stride == 0, "a stride is written while its own query is searched for"
