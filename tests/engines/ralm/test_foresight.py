"""Which drafted tokens are believed far enough to search for what they tell."""

from __future__ import annotations

import pytest

from engines.draft_tree import PROMPT, DraftTree, chain, root_only
from engines.ralm.foresight import foreseen_ends


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        (4, [[1, 2, 3, 4]]),
        (5, [[1, 2, 3]]),
        (7, [[1], [1, 2, 3, 4, 5]]),
        (8, [[1, 2, 3, 4]]),
    ],
)
def test_a_draft_tells_the_ends_of_strides_that_it_reaches(
    written: int, ends: list[list[int]]
) -> None:
    tree = chain(9, [1, 2, 3, 4, 5], PROMPT, probability=0.95)
    assert foreseen_ends(tree, written, 4) == ends


def test_no_draft_tells_nothing() -> None:
    assert foreseen_ends(root_only(9), 3, 4) == []


def test_tokens_are_believed_as_long_as_all_together_are_likely() -> None:
    tree = chain(9, [1, 2, 3], PROMPT, probability=0.8)
    assert foreseen_ends(tree, 1, 1) == [[1], [1, 2], [1, 2, 3]]
    tree = chain(9, [1, 2, 3, 4], PROMPT, probability=0.8)
    assert foreseen_ends(tree, 1, 1) == [[1], [1, 2], [1, 2, 3]], "0.8 to the 4th is 0.41"


def test_the_likeliest_path_tells() -> None:
    tree = DraftTree([9])
    tree.add(0, 1, PROMPT, 0.3)
    likely = tree.add(0, 2, PROMPT, 0.6)
    tree.add(1, 3, PROMPT, 1.0)
    tree.add(likely, 4, PROMPT, 0.9)
    assert foreseen_ends(tree, 2, 4) == [[2, 4]]
