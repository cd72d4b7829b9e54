"""Ranking: probabilities that add up, best first, from every n-gram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.crest.format import CrestEntry
from datastores.crest.selection import BACKOFF_BOOST, DISCOUNT
from engines.draft_tree import CHATS, PROMPT
from engines.drafters.ngram_ranking import ESCAPE_WEIGHT, ContextNgrams, interpolate, rank

Paths = Mapping[tuple[int, ...], float]


def entry(count: float, paths: Paths, kind: int = 1) -> CrestEntry:
    """A tree from P(last token | the rest) of every path, in level order."""
    order = sorted(paths, key=lambda path: (len(path), path))
    rows = {(): 0} | {path: row for row, path in enumerate(order, 1)}
    spans = []
    for parent in ((), *order):
        below = [rows[path] for path in order if path[:-1] == parent]
        first = below[0] if below else len(rows)
        spans.append((first, first + len(below)))
    tokens = [0, *(path[-1] for path in order)]
    return CrestEntry(count, kind, tokens, [1.0, *(paths[path] for path in order)], spans)


@st.composite
def entries(draw: st.DrawFn) -> list[CrestEntry]:
    """Trees of two levels, over few tokens so that they overlap."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        paths: dict[tuple[int, ...], float] = {}
        for token in draw(st.sets(st.integers(1, 6), max_size=5)):
            paths[token,] = draw(st.floats(0.01, 0.2))
            for below in draw(st.sets(st.integers(1, 6), max_size=3)):
                paths[token, below] = draw(st.floats(0.01, 0.33))
        found.append(entry(draw(st.floats(1, 1000)), paths))
    return found


def ngrams_of(tokens: Sequence[int]) -> ContextNgrams:
    """The n-grams of a context."""
    ngrams = ContextNgrams()
    ngrams.begin(tokens)
    ngrams.extend()
    return ngrams


@given(entries(), st.lists(st.integers(1, 6), max_size=30))
def test_what_may_follow_adds_up_to_at_most_one(
    given_entries: list[CrestEntry], tokens: list[int]
) -> None:
    found = interpolate(
        [(one, 0, one.count) for one in given_entries], (1, 2, 3), ngrams_of(tokens)
    )
    values = [candidate.probability for candidate in found.values()]
    assert all(value > 0 for value in values)
    assert sum(values) <= 1 + 1e-9


@given(entries(), st.integers(0, 20))
def test_rows_come_best_first_parents_before_children(
    given_entries: list[CrestEntry], limit: int
) -> None:
    tree = rank(given_entries, [5], limit)
    assert tree.drafted <= limit
    paths = [1.0]
    for row in range(1, len(tree)):
        assert tree.parents[row] < row
        paths.append(tree.probabilities[row] * paths[tree.parents[row]])
    assert paths[1:] == sorted(paths[1:], reverse=True)
    for children in tree.children():
        assert sum(tree.probabilities[row] for row in children.values()) <= 1 + 1e-9


def probabilities(
    *nodes: tuple[CrestEntry, int, float], ngrams: ContextNgrams | None = None
) -> dict[int, float]:
    found = interpolate(nodes, (1, 2, 3), ngrams)
    return {token: candidate.probability for token, candidate in found.items()}


def test_one_ngram_is_discounted() -> None:
    found = probabilities((entry(10, {(7,): 0.6, (8,): 0.4}), 0, 10.0))
    discounted, backoff = 10 - 2 * DISCOUNT, 2 * DISCOUNT * BACKOFF_BOOST
    assert found[7] == pytest.approx((6 - DISCOUNT) / (discounted + backoff))
    assert found[8] == pytest.approx((4 - DISCOUNT) / (discounted + backoff))


def test_the_shorter_ngram_gets_the_mass_the_longer_leaves() -> None:
    long, short = entry(4, {(7,): 1.0}), entry(1000, {(8,): 1.0})
    found = probabilities((long, 0, 4.0), (short, 0, 1000.0))
    backoff = DISCOUNT * BACKOFF_BOOST
    assert found[8] == pytest.approx(
        (1 - found[7]) * (1000 - DISCOUNT) / (1000 - DISCOUNT + backoff)
    )


def test_the_context_comes_before_the_store() -> None:
    ngrams = ngrams_of([3, 9, 3, 9, 3])
    found = interpolate([(entry(100, {(7,): 0.9}), 0, 100.0)], (3,), ngrams)
    assert found[9].probability == pytest.approx(2 / (2 + ESCAPE_WEIGHT))
    assert found[9].origin == PROMPT
    assert found[7].origin == CHATS
    assert found[7].probability < 1 - found[9].probability


def test_a_token_known_to_both_is_credited_to_both() -> None:
    ngrams = ngrams_of([3, 7, 3])
    found = interpolate([(entry(100, {(7,): 0.9}), 0, 100.0)], (3,), ngrams)
    assert found[7].origin == PROMPT | CHATS
    assert found[7].nodes


def test_a_path_is_followed_in_every_tree_that_has_it() -> None:
    long = entry(4, {(7,): 1.0})
    short = entry(100, {(7,): 0.5, (7, 3): 1.0}, kind=2)
    tree = rank([long, short], [5], 10)
    assert tree.tokens == [5, 7, 3]
    assert tree.origins == [0, 1 << 1, 1 << 2]


def test_a_path_may_begin_in_the_store_and_continue_in_the_context() -> None:
    ngrams = ngrams_of([8, 6, 1, 8, 6, 5])
    tree = rank([entry(100, {(8,): 0.99})], [8, 6, 1, 8, 6, 5], 3, ngrams)
    assert tree.tokens[1:3] == [8, 6]
    assert tree.parents[1:3] == [0, 1]
