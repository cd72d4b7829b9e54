"""P of whole paths is right on average, where the product of the rows' estimates is not."""

from __future__ import annotations

import numpy as np
import pytest

from engines.budget.acceptance_model import PathCalibration
from engines.draft_tree import PROMPT, DraftTree, chain


def draft(estimate: float) -> DraftTree:
    """A chain of eight rows, each thought to come with probability `estimate`."""
    return chain(0, list(range(1, 9)), PROMPT, estimate)


def walked(random: np.random.Generator) -> list[int]:
    """A text that follows its drafts to the end or not at all."""
    return list(range(1, 9)) if random.random() < 0.6 else []


def test_paths_learn_that_a_text_leaves_all_rows_at_once() -> None:
    random, following = np.random.default_rng(0), PathCalibration()
    for _ in range(2000):
        tree = draft(0.7)
        following.learn(tree, walked(random), sum(following.paths(tree)) - 1.0)
    paths = following.paths(draft(0.7))
    assert paths[1] == pytest.approx(0.6, abs=0.12)
    assert paths[8] == pytest.approx(0.6, abs=0.12)
    restored = PathCalibration()
    restored.restore(following.state())
    assert restored.paths(draft(0.7))[8] > 0.4


def test_no_path_is_likelier_than_its_beginning() -> None:
    tree = chain(0, [1], PROMPT, 0.2)
    tree.add(1, 2, PROMPT, 1.0)
    tree.add(0, 3, PROMPT, 0.9)
    paths = PathCalibration().paths(tree)
    assert paths[0] == 1.0
    assert paths[2] <= paths[1] < paths[3] <= 1.0


def test_broken_promises_make_it_doubt_the_next() -> None:
    following = PathCalibration()
    before = following.paths(draft(0.9))[3]
    for _ in range(10):
        following.learn(draft(0.9), [], 6.0)
    assert following.paths(draft(0.9))[3] < 0.5 * before


def test_it_outlives_any_number_of_broken_promises() -> None:
    following, tree = PathCalibration(), draft(0.9)
    for _ in range(20_000):
        following.learn(tree, [], sum(following.paths(tree)) - 1.0)
    assert 0.0 < following.paths(tree)[1] < 0.01
    for _ in range(200):
        following.learn(tree, range(1, 9), sum(following.paths(tree)) - 1.0)
    assert following.paths(tree)[1] > 0.3


def test_a_state_of_another_shape_is_left_aside() -> None:
    following = PathCalibration()
    following.restore({"weights": [1.0], "squares": [1.0]})
    assert following.paths(draft(0.5)) == PathCalibration().paths(draft(0.5))
