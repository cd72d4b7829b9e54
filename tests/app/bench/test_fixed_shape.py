"""A draft cut to a shape has that shape and keeps its likeliest paths."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.bench.baselines import DraftShape, ShapedDrafter, cut
from engines.draft_tree import DraftTree, chain, root_only
from engines.step import Context, Step


@st.composite
def trees(draw: Any) -> DraftTree:
    """Trees whose siblings differ."""
    tree = root_only(0)
    for token in range(1, draw(st.integers(1, 25))):
        parent = draw(st.integers(0, len(tree) - 1))
        tree.add(parent, token, 1, draw(st.floats(0.01, 1.0)))
    return tree


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    """Every path from the root, as tokens."""
    found: list[tuple[int, ...]] = [()]
    for row in range(1, len(tree)):
        found.append((*found[tree.parents[row]], tree.tokens[row]))
    return set(found)


def leaves(tree: DraftTree) -> int:
    return sum(not children for children in tree.children()) if tree.drafted else 0


@given(trees(), st.integers(1, 6), st.integers(1, 6))
def test_a_cut_tree_has_the_shape(tree: DraftTree, drafts: int, length: int) -> None:
    shaped = cut(tree, DraftShape(drafts, length))
    assert leaves(shaped) <= drafts
    assert max(shaped.depths()) <= length
    assert shaped.drafted <= DraftShape(drafts, length).rows
    assert paths(shaped) <= paths(tree)
    assert bool(shaped.drafted) == bool(tree.drafted)


@given(trees())
def test_a_tree_that_fits_is_kept_whole(tree: DraftTree) -> None:
    assert paths(cut(tree, DraftShape(leaves(tree), max(tree.depths())))) == paths(tree)


def test_the_likeliest_drafts_are_kept() -> None:
    tree = root_only(0)
    for token, chance in ((1, 0.2), (2, 0.5), (3, 0.3)):
        tree.add(tree.add(0, token, 1, chance), 10 * token, 1, 0.9)
    assert paths(cut(tree, DraftShape(2, 5))) == {(), (2,), (2, 20), (3,), (3, 30)}


class Fixed:
    """Drafts one long chain."""

    name = "prompt"
    top_tokens_needed = 3

    def __init__(self) -> None:
        self.asked: list[int] = []

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """As long as requested."""
        self.asked.append(limit)
        return chain(context.root, list(range(limit)), 1)

    def observe(self, step: Step) -> None:
        """Nothing."""


def test_a_shaped_drafter_drafts_the_shape_however_many_rows_would_pay() -> None:
    drafter = Fixed()
    shaped = ShapedDrafter(drafter, DraftShape(3, 7))
    assert (shaped.name, shaped.top_tokens_needed) == ("prompt", 3)
    tree = shaped.propose(Context([5], np.zeros(1, np.float32), 0.0), 1)
    assert tree.tokens[1:] == list(range(7))
    assert drafter.asked[0] > DraftShape(3, 7).rows
