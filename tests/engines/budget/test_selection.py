"""Merged trees, and the choice of rows among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.loss_limit import (
    LossLimiter,
)
from engines.budget.selection import (
    BASE,
    FEATURES,
    MARGIN,
    affordable,
    by_probability,
    choose_count,
    merge,
    prune,
    with_reevaluations,
)
from engines.draft_tree import DRAFT_MODEL, PROMPT, RECYCLE, DraftTree, root_only
from engines.step import Proposal


@st.composite
def trees(draw: st.DrawFn, origin: int = DRAFT_MODEL, rows: int = 12) -> DraftTree:
    """Valid trees over a tiny vocabulary, so that they overlap."""
    tree = root_only(0)
    for _ in range(draw(st.integers(0, rows))):
        parent = draw(st.integers(0, len(tree) - 1))
        token = draw(st.integers(0, 4))
        if token not in tree.children()[parent]:
            tree.add(parent, token, origin, draw(st.floats(0, 1)), draw(st.floats(0, 9)))
    return tree


def paths(tree: DraftTree) -> dict[tuple[int, ...], int]:
    """Every path of the tree with the origins of its last row."""
    found: dict[int, tuple[int, ...]] = {0: ()}
    for row in range(1, len(tree)):
        found[row] = (*found[tree.parents[row]], tree.tokens[row])
    return {found[row]: tree.origins[row] for row in range(1, len(tree))}


@given(trees(PROMPT), trees(RECYCLE))
def test_a_merged_tree_is_the_union_of_its_parts(one: DraftTree, other: DraftTree) -> None:
    proposals = [Proposal("prompt", one, 0.0), Proposal("recycle", other, 0.0)]
    merged = merge(0, proposals, 0.7)
    union = dict(paths(one))
    for path, origins in paths(other).items():
        union[path] = union.get(path, 0) | origins
    assert paths(merged.tree) == union
    features = [dict(merged.features(row)) for row in range(1, len(merged.tree))]
    assert sum(row.get(BASE["prompt"], 0.0) for row in features) == one.drafted
    assert sum(row.get(BASE["recycle"], 0.0) for row in features) == other.drafted
    weights = np.random.default_rng(one.drafted).normal(size=FEATURES).tolist()
    expected = [0.0, *(sum(weights[i] * value for i, value in row.items()) for row in features)]
    assert merged.scores(weights) == pytest.approx(expected)


@given(trees(PROMPT), trees(RECYCLE), st.integers(0, 24))
def test_estimates_are_probabilities_and_prune_keeps_a_tree(
    one: DraftTree, other: DraftTree, count: int
) -> None:
    merged = merge(0, [Proposal("prompt", one, 0.0), Proposal("recycle", other, 0.0)], 0.0)
    chances = AcceptanceModel().estimate(merged)
    tree = merged.tree
    for row, children in enumerate(tree.children()):
        assert sum(tree.probabilities[child] for child in children.values()) <= 1.0 + 1e-9
        assert all(chances[child] <= chances[row] + 1e-12 for child in children.values())
    order = by_probability(tree, chances, chains_only=False)
    kept = prune(tree, order[:count])
    assert paths(kept).items() <= paths(tree).items()
    assert kept.drafted == min(count, tree.drafted)
    single = prune(tree, by_probability(tree, chances, chains_only=True))
    assert single.is_chain()


@given(
    st.lists(st.floats(0, 1), max_size=30),
    st.lists(st.floats(0, 1e-2), min_size=31, max_size=31),
)
def test_choose_count_equals_trying_every_length(gains: list[float], steps: list[float]) -> None:
    gains = sorted(gains, reverse=True)
    table = [0.0, *np.cumsum([1e-3, *steps]).tolist()]
    rates = [
        (1.0 + sum(gains[:count])) / (table[1] + MARGIN * (table[count + 1] - table[1]))
        for count in range(len(gains) + 1)
    ]
    assert rates[choose_count(gains, table)] == pytest.approx(max(rates))


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.lists(st.floats(0, 1e-2), min_size=12, max_size=12),
    st.integers(0, 13),
)
def test_reevaluations_are_priced_by_how_many_rows_the_walk_keeps(
    gains: list[float], steps: list[float], rollback_rows: int
) -> None:
    gains = sorted(gains, reverse=True)
    table = [0.0, *np.cumsum([1e-3, *steps]).tolist()]
    priced = with_reevaluations(table, gains, rollback_rows, 1.5)
    assert priced[: rollback_rows + 2] == table[: rollback_rows + 2]
    reached = [1.0, *gains, 0.0]
    for rows in range(2, len(gains) + 2):
        expected = table[rows]
        for kept in range(1, rows + 1):
            stops = reached[kept - 1] - (reached[kept] if kept < rows else 0.0)
            if rows - kept > rollback_rows:
                expected += stops * 1.5 * table[kept]
        assert priced[rows] == pytest.approx(expected)


def test_a_long_draft_without_rollback_needs_better_odds() -> None:
    table = [0.0, *(1.0 + 0.05 * rows for rows in range(32))]
    sure, doubtful = [0.99**row for row in range(1, 31)], [0.6**row for row in range(1, 31)]
    free, costly = (with_reevaluations(table, doubtful, rows, 1.2) for rows in (31, 0))
    assert choose_count(doubtful, free) > choose_count(doubtful, costly)
    assert choose_count(sure, with_reevaluations(table, sure, 0, 1.2)) > 16


def test_no_more_rows_are_verified_than_are_allowed() -> None:
    table = [0.0, 1.0, 2.0, 4.0, 4.5]
    assert affordable(3, [0.9, 0.8, 0.7], table, LossLimiter()) == 3
    assert affordable(3, [0.9, 0.2, 0.1], table, LossLimiter()) == 1
    assert affordable(3, [0.9, 0.2, 0.1], [0.0, 1.0, 5.0, 6.0, 7.0], LossLimiter()) == 1
    assert affordable(3, [0.3, 0.2, 0.1], [0.0, 1.0, 5.0, 6.0, 7.0], LossLimiter()) == 0
