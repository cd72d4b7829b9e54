"""AdaGrad: steps equal the formula, and damaged states are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.budget.acceptance_model import MAX_WEIGHT, AdaGrad

slopes = st.lists(st.floats(-10, 10), min_size=3, max_size=3)


def make(decay: float = 0.9, epsilon: float = 1e-12) -> AdaGrad:
    return AdaGrad((0.1, -0.2, 0.3), rate=0.5, prior_squares=1.0, decay=decay, epsilon=epsilon)


@given(st.lists(slopes, max_size=6), st.floats(0, 1))
def test_steps_are_those_of_the_formula(gradients: list[list[float]], decay: float) -> None:
    learner = make(decay)
    weights, squares = np.array([0.1, -0.2, 0.3]), np.ones(3)
    for gradient in np.array(gradients).reshape(-1, 3):
        learner.step(gradient.tolist())
        squares = squares * decay + (gradient**2 + 1e-12)
        weights -= 0.5 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(learner.weights, weights, rtol=1e-12, atol=1e-12)


@given(st.lists(slopes, max_size=4), slopes)
def test_a_saved_state_continues_elsewhere(gradients: list[list[float]], last: list[float]) -> None:
    here, there = make(), make()
    for gradient in gradients:
        here.step(gradient)
    there.restore(here.state())
    for learner in (here, there):
        learner.step(last)
    assert there.state() == here.state()


def test_a_saved_state_is_not_changed_by_later_steps() -> None:
    learner = make()
    state = learner.state()
    learner.step([1.0, 1.0, 1.0])
    assert state == make().state()


@pytest.mark.parametrize(
    "damage",
    [
        {"weights": [0.0, 0.0, MAX_WEIGHT + 1.0]},
        {"squares": [1.0, 1.0, 0.0]},
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(
    damage: dict[str, list[float]],
) -> None:
    learner = make()
    with pytest.raises(ValueError, match="out of range"):
        learner.restore(make().state() | damage)
    assert learner.state() == make().state()


def test_a_state_of_another_shape_is_ignored_too() -> None:
    learner = make()
    learner.restore({"weights": [1.0], "squares": [1.0]})
    learner.restore({})
    assert learner.state() == make().state()
