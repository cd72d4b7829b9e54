"""P of whole paths is right on average, where the product of the rows' estimates is not."""

from __future__ import annotations

import numpy as np
import pytest

from engines.budget.acceptance_model import AcceptanceModel, PathCalibration
from engines.budget.selection import merge
from engines.draft_tree import PROMPT, DraftTree, chain
from engines.step import Proposal


def draft(estimate: float) -> DraftTree:
    """A chain of eight rows, each estimated at probability `estimate`."""
    return chain(0, list(range(1, 9)), PROMPT, estimate)


def walked(random: np.random.Generator) -> list[int]:
    """A text that follows its drafts to the end or not at all."""
    return list(range(1, 9)) if random.random() < 0.6 else []


def test_paths_learn_that_a_text_leaves_all_rows_at_once() -> None:
    random, calibration = np.random.default_rng(0), PathCalibration()
    for _ in range(2000):
        tree = draft(0.7)
        calibration.learn(tree, walked(random), sum(calibration.paths(tree)) - 1.0)
    paths = calibration.paths(draft(0.7))
    assert paths[1] == pytest.approx(0.6, abs=0.12)
    assert paths[8] == pytest.approx(0.6, abs=0.12)
    restored = PathCalibration()
    restored.restore(calibration.state())
    assert restored.paths(draft(0.7))[8] > 0.4


def test_no_path_is_likelier_than_its_beginning() -> None:
    tree = chain(0, [1], PROMPT, 0.2)
    tree.add(1, 2, PROMPT, 1.0)
    tree.add(0, 3, PROMPT, 0.9)
    paths = PathCalibration().paths(tree)
    assert paths[0] == 1.0
    assert paths[2] <= paths[1] < paths[3] <= 1.0


def test_rejected_drafts_lower_the_next_estimates() -> None:
    calibration = PathCalibration()
    before = calibration.paths(draft(0.9))[3]
    for _ in range(10):
        calibration.learn(draft(0.9), [], 6.0)
    assert calibration.paths(draft(0.9))[3] < 0.5 * before


def test_it_recovers_from_any_number_of_rejected_drafts() -> None:
    calibration, tree = PathCalibration(), draft(0.9)
    for _ in range(20_000):
        calibration.learn(tree, [], sum(calibration.paths(tree)) - 1.0)
    assert 0.0 < calibration.paths(tree)[1] < 0.01
    for _ in range(200):
        calibration.learn(tree, range(1, 9), sum(calibration.paths(tree)) - 1.0)
    assert calibration.paths(tree)[1] > 0.3


def test_a_state_of_another_shape_is_ignored() -> None:
    calibration = PathCalibration()
    calibration.restore({"weights": [1.0], "squares": [1.0]})
    assert calibration.paths(draft(0.5)) == PathCalibration().paths(draft(0.5))


def test_weights_saved_under_the_old_key_are_restored() -> None:
    trained = AcceptanceModel()
    for _ in range(40):
        merged = merge(0, [Proposal("prompt", draft(0.7), 0.0)], 0.0)
        trained.add_pending(merged, trained.estimate(merged))
        trained.learn([1, 2, 9])
    state = trained.state()
    assert {"path_weights", "path_squares"} < state.keys()
    old = {name.replace("path_", "following_"): kept for name, kept in state.items()}
    restored, unlearned = AcceptanceModel(), AcceptanceModel()
    restored.restore(old)
    assert restored.state() == state
    assert restored.state() != unlearned.state()
    unlearned.restore(old | state)
    assert unlearned.state() == state
