"""A model that gives several distributions in one pass drafts combinations of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import pytest

from engines.draft_tree import DRAFT_MODEL, DraftTree
from engines.drafters.model_drafter import MIN_PATH_PROBABILITY, ModelDrafter
from engines.step import Context
from engines.target import Floats
from tests.engines.test_decode import NEVER

DEPTH, VOCABULARY = 4, 4
ROWS = np.random.default_rng(3).normal(size=(DEPTH, VOCABULARY)).astype(np.float32)
SHARES = np.exp(ROWS) / np.exp(ROWS).sum(1, keepdims=True)
PROMPT = [1, 2, 3]


class ScriptedBlock:
    """Drafts the same block after any text; `asked` has the rows that each pass was asked for."""

    context_length = 100
    max_depth = DEPTH
    draft_vocabulary = None

    def __init__(self) -> None:
        self.asked: list[int] = []

    def begin(self, tokens: Sequence[int]) -> int:
        return 1

    def read(self, count: int) -> None:
        raise AssertionError

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        self.asked.append(count)
        return ROWS[:count]


class BlockDrafter(ModelDrafter):
    name = "block"
    origin = DRAFT_MODEL
    subject = "the block"


def proposed(
    block: ScriptedBlock, limit: int, stops: frozenset[int] = NEVER, price: float = 0.0
) -> DraftTree:
    context = Context(PROMPT, np.zeros(4, np.float32), 0.0, row_price=price)
    return BlockDrafter(block, stops).propose(context, limit)


def paths(tree: DraftTree) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for parent, token in zip(tree.parents[1:], tree.tokens[1:], strict=True):
        found.append((*found[parent], token))
    return found[1:]


def share(path: tuple[int, ...]) -> float:
    return prod(float(SHARES[depth, token]) for depth, token in enumerate(path))


@pytest.mark.parametrize("limit", [4, 9, 200])
def test_the_most_probable_combinations_are_drafted_in_one_pass(limit: int) -> None:
    block = ScriptedBlock()
    found = paths(proposed(block, limit))
    every = [
        path
        for depth in range(1, min(limit, DEPTH) + 1)
        for path in product(range(VOCABULARY), repeat=depth)
        if share(path) >= MIN_PATH_PROBABILITY
    ]
    assert found == sorted(every, key=share, reverse=True)[:limit]
    assert block.asked == [min(limit, DEPTH)]


def test_nothing_is_drafted_after_the_end_of_an_answer() -> None:
    stop = int(ROWS[0].argsort()[-2])
    found = paths(proposed(ScriptedBlock(), 200, frozenset({stop})))
    assert (stop,) in found
    assert all(stop not in path[:-1] for path in found)


def test_fewer_tokens_are_drafted_where_rows_are_dear_to_verify() -> None:
    found = paths(proposed(ScriptedBlock(), 200, price=0.3))
    depth = max(map(len, found))
    assert depth < max(map(len, paths(proposed(ScriptedBlock(), 200))))
    assert max(share(path) for path in found if len(path) == depth) <= 0.3
