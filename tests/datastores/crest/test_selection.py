"""Utility: a longer n-gram is kept for what it corrects, not for what it repeats."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given

from datastores.crest.selection import candidates, estimated_bytes, select_nodes, utilities
from datastores.crest.texts import TokenText
from tests.datastores.crest.reference import Path, counted, text_of, texts


def node_worths(docs: list[TokenText], length: int) -> dict[Path, float]:
    """The worth of every node in the trees of n-grams of `length` tokens, by its string."""
    levels = counted(docs, 6).levels
    names: list[list[Path]] = [[()]]
    for level in levels:
        pairs = zip(level.prefixes.tolist(), level.tokens.tolist(), strict=True)
        names.append([(*names[-1][prefix], token) for prefix, token in pairs])
    found = utilities(levels, length)
    return {
        string: worth
        for deep, worth_of in found.items()
        for string, worth in zip(names[deep], worth_of.tolist(), strict=True)
    }


def varied(draw: np.random.Generator, *phrases: tuple[int, ...]) -> list[TokenText]:
    """Phrases between random words, so that only they repeat."""
    tokens: list[int] = []
    for phrase in phrases:
        tokens += [*draw.integers(100, 100_000, 3).tolist(), *phrase]
    return [text_of(0, tokens)]


def test_repeating_the_shorter_is_worth_less_than_correcting_it() -> None:
    draw = np.random.default_rng(1)
    # After 1 2 comes 3, as after every 2; after 5 6 comes 7, though after other 6s comes 8.
    docs = varied(draw, *[(1, 2, 3), (4, 2, 3), (5, 6, 7), (9, 6, 8), (9, 6, 8)] * 20)
    worth = node_worths(docs, 2)
    assert worth[5, 6, 7] > 3 * worth[1, 2, 3]


def test_long_strings_take_more_evidence() -> None:
    draw = np.random.default_rng(2)
    docs = varied(draw, *[(1, 2, 3, 4, 5, 6)] * 6)
    worth = node_worths(docs, 1)
    assert worth[1, 2] > 1.9 * worth[1, 2, 3] > 3.8 * worth[1, 2, 3, 4]


@given(texts)
def test_no_node_is_worth_less_than_one_below_it(docs: list[TokenText]) -> None:
    for length in (1, 2, 3):
        worth = node_worths(docs, length)
        for string, value in worth.items():
            assert worth.get(string[:-1], value) >= value >= 0


@given(texts)
def test_a_higher_threshold_keeps_fewer_of_the_same_nodes(docs: list[TokenText]) -> None:
    levels = counted(docs, 6).levels
    nodes = candidates(levels, 2, utilities(levels, 2), 0.0)
    sizes = [select_nodes(nodes, least) for least in (0.0, 0.02, 0.2, 2.0)]
    for more, fewer in pairwise(sizes):
        assert estimated_bytes(fewer) <= estimated_bytes(more)
        named = set(zip(more.depths.tolist(), more.strings.tolist(), strict=True))
        assert named >= set(zip(fewer.depths.tolist(), fewer.strings.tolist(), strict=True))
