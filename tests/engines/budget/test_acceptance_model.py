"""Calibration: AdaGrad, P of whole paths, and which drafter is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engines.budget.acceptance_model
import engines.budget.policies
import engines.budget.selection
from engines.budget.acceptance_model import MAX_WEIGHT, AcceptanceModel, AdaGrad
from engines.budget.selection import (
    merge,
)
from engines.draft_tree import PROMPT, RECYCLE, DraftTree, chain, root_only
from engines.step import Proposal

GRADIENTS = st.lists(st.floats(-10, 10), min_size=3, max_size=3)


def make_learner(decay: float = 0.9, epsilon: float = 1e-12) -> AdaGrad:
    return AdaGrad((0.1, -0.2, 0.3), rate=0.5, prior_squares=1.0, decay=decay, epsilon=epsilon)


@given(st.lists(GRADIENTS, max_size=6), st.floats(0, 1))
def test_steps_are_those_of_the_formula(gradients: list[list[float]], decay: float) -> None:
    learner = make_learner(decay)
    weights, squares = np.array([0.1, -0.2, 0.3]), np.ones(3)
    for gradient in np.array(gradients).reshape(-1, 3):
        learner.step(gradient.tolist())
        squares = squares * decay + (gradient**2 + 1e-12)
        weights -= 0.5 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(learner.weights, weights, rtol=1e-12, atol=1e-12)


@given(st.lists(GRADIENTS, max_size=4), GRADIENTS)
def test_a_saved_state_continues_elsewhere(gradients: list[list[float]], last: list[float]) -> None:
    here, there = make_learner(), make_learner()
    for gradient in gradients:
        here.step(gradient)
    there.restore(here.state())
    for learner in (here, there):
        learner.step(last)
    assert there.state() == here.state()


def test_a_saved_state_is_not_changed_by_later_steps() -> None:
    learner = make_learner()
    state = learner.state()
    learner.step([1.0, 1.0, 1.0])
    assert state == make_learner().state()


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
    learner = make_learner()
    with pytest.raises(ValueError, match="out of range"):
        learner.restore(make_learner().state() | damage)
    assert learner.state() == make_learner().state()


def test_adagrad_ignores_a_state_of_another_shape() -> None:
    learner = make_learner()
    learner.restore({"weights": [1.0], "squares": [1.0]})
    learner.restore({})
    assert learner.state() == make_learner().state()


def draft(estimate: float) -> DraftTree:
    """A chain of eight rows, each estimated at probability `estimate`."""
    return chain(0, list(range(1, 9)), PROMPT, estimate)


def test_no_path_is_likelier_than_its_beginning() -> None:
    tree = chain(0, [1], PROMPT, 0.2)
    tree.add(1, 2, PROMPT, 1.0)
    tree.add(0, 3, PROMPT, 0.9)
    paths = AcceptanceModel().estimate(merge(0, [Proposal("prompt", tree, 0.0)], 0.0))
    assert paths[0] == 1.0
    assert paths[2] <= paths[1] < paths[3] <= 1.0


def estimates(calibration: AcceptanceModel, estimate: float) -> list[float]:
    """P of the paths of one draft."""
    return calibration.estimate(merge(0, [Proposal("prompt", draft(estimate), 0.0)], 0.0))


def test_rejected_drafts_lower_the_next_estimates_and_accepted_ones_raise_them() -> None:
    calibration = AcceptanceModel()
    for tokens in ([9], list(range(1, 10))):
        before = estimates(calibration, 0.8)[1]
        for _ in range(100):
            merged = merge(0, [Proposal("prompt", draft(0.8), 0.0)], 0.0)
            calibration.estimate(merged)
            calibration.add_pending(merged)
            calibration.learn(tokens)
        after = estimates(calibration, 0.8)[1]
        assert (after < 0.7 * before) if tokens == [9] else (after > before)


def test_an_answer_that_copies_does_not_make_weak_drafts_sure() -> None:
    calibration = AcceptanceModel()
    weak = estimates(calibration, 0.3)
    for _ in range(500):
        merged = merge(0, [Proposal("prompt", draft(0.98), 0.0)], 0.0)
        calibration.estimate(merged)
        calibration.add_pending(merged)
        calibration.learn(range(1, 10))
    assert estimates(calibration, 0.3)[1] < weak[1] + 0.2
    assert estimates(calibration, 0.3)[8] < 0.05


def test_the_best_first_token_is_estimated_as_in_the_merged_draft() -> None:
    calibration = AcceptanceModel()
    proposal = Proposal("recycle", chain(0, [4], RECYCLE, 0.6), 0.0)
    proposal.tree.add(0, 5, RECYCLE, 0.2)
    paths = calibration.estimate(merge(0, [proposal], 0.7))
    assert calibration.best_first(proposal, 0.7) == pytest.approx(paths[1])
    assert calibration.best_first(Proposal("recycle", root_only(0), 0.0), 0.7) == 0.0


def test_calibration_learns_which_drafter_is_right() -> None:
    random = np.random.default_rng(0)
    calibration = AcceptanceModel()
    for _ in range(3000):
        truth = int(random.integers(1, 50))
        liar = chain(0, [int(random.integers(1, 50))], PROMPT, 0.9)
        honest = chain(0, [truth if random.random() < 0.7 else 99], RECYCLE, 0.3)
        merged = merge(0, [Proposal("prompt", liar, 0.0), Proposal("recycle", honest, 0.0)], 0.0)
        calibration.estimate(merged)
        calibration.add_pending(merged)
        calibration.learn([truth])
    merged = merge(
        0,
        [
            Proposal("prompt", chain(0, [1], PROMPT, 0.9), 0.0),
            Proposal("recycle", chain(0, [2], RECYCLE, 0.3), 0.0),
        ],
        0.0,
    )
    calibration.estimate(merged)
    assert merged.tree.probabilities[1] < 0.1
    assert merged.tree.probabilities[2] == pytest.approx(0.7, abs=0.12)
    restored = AcceptanceModel()
    restored.restore(calibration.state())
    restored.estimate(merged)
    assert merged.tree.probabilities[2] == pytest.approx(0.7, abs=0.12)


def test_a_long_silent_drafter_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As after millions of tokens.
    monkeypatch.setattr(engines.budget.acceptance_model, "SQUARES_DECAY", 0.0)
    calibration = AcceptanceModel()
    for _ in range(100):
        merged = merge(0, [Proposal("prompt", chain(0, [1, 2], PROMPT, 0.9), 0.0)], 0.0)
        calibration.estimate(merged)
        calibration.add_pending(merged)
        calibration.learn([1, 2])
    assert np.isfinite(calibration.state()["weights"]).all()


def test_hindsight_scores_proposals_that_were_never_verified() -> None:
    calibration, learned = AcceptanceModel(), AcceptanceModel()
    for _ in range(20):
        merged = merge(0, [Proposal("prompt", chain(0, [1, 2, 3], PROMPT), 0.0)], 0.0)
        learned.estimate(merged)
        learned.add_pending(merged)
        learned.learn([1])
        learned.learn([9])
    assert learned.state()["weights"] != calibration.state()["weights"]
