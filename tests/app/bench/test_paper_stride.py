"""The paper's OS3: its objectives, its estimates, and the bounds of the speed-up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.paper_stride import MAX_ACCURACY, WINDOW, PaperStride, best_stride, rate
from engines.ralm.scheduler import Verification
from engines.ralm.stride_rates import (
    MAX_STRIDE,
    StrideCosts,
    batch_rates,
    sequential_rate,
    speedup_bound,
)
from tests.engines.ralm.test_scheduler import SECONDS, steady


@given(st.floats(0, 0.99), SECONDS, SECONDS, st.booleans())
def test_the_best_stride_is_the_largest_rate(
    accuracy: float, stride_s: float, verify_s: float, asynchronous: bool
) -> None:
    stride = best_stride(accuracy, stride_s, verify_s, asynchronous=asynchronous)
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
    # Correct guesses cost as in the paper, and searching first is RaLMSeq.
    right = batch_rates(steady(1.0), costs)
    assert right.tolist() == pytest.approx(
        [
            rate(stride, 1.0, stride_s, verify_s, asynchronous=False)
            for stride in range(1, MAX_STRIDE + 1)
        ]
    )
    assert sequential_rate(costs) == pytest.approx(1 / (stride_s + verify_s))


def test_the_papers_strides() -> None:
    # At r = 17 and γ = 0.95 about 21; with the paper's γ_max of 0.6 about 5.
    assert 18 <= best_stride(0.95, 1.0, 17.0, asynchronous=False) <= 24
    assert 4 <= best_stride(0.6, 1.0, 17.0, asynchronous=False) <= 7
    # If searches take no time, each stride is verified by itself.
    assert best_stride(0.6, 1.0, 0.01, asynchronous=False) == 1
    assert speedup_bound(3, 17, asynchronous=False) == pytest.approx(2.7)
    assert speedup_bound(3, 0.5, asynchronous=True) == pytest.approx(1.5)


def test_the_accuracy_is_that_of_the_last_verifications() -> None:
    scheduler = PaperStride(asynchronous=False)
    scheduler.verified(Verification(1, 0, 17.0))
    assert (scheduler.accuracy, scheduler.choice.stride) == (MAX_ACCURACY, 1), "nothing is known"
    scheduler.wrote(1.0, new=False)
    for matched in (1, 0, 2, 0):
        scheduler.verified(Verification(3, matched, 17.0, [False] * 3))
    assert scheduler.accuracy == 3 / 7
    assert scheduler.choice.stride == best_stride(3 / 7, 1.0, 17.0, asynchronous=False)
    for _ in range(WINDOW):
        scheduler.verified(Verification(3, 3, 17.0, [False] * 3))
    assert scheduler.accuracy == MAX_ACCURACY
    assert 4 <= scheduler.choice.stride <= 7
