"""Dense search equals brute force, in batches and alone, and scores a subset alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.errors import StoreError
from datastores.passages.embeddings import Vectors
from engines.retrieval.exact import BLOCK
from engines.retrieval.vectors import VectorIndex, inner_products

WIDTH = 16


def unit(count: int, seed: int) -> Vectors:
    drawn = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    scaled: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return scaled


@given(
    count=st.integers(1, 300),
    queries=st.integers(1, 30),
    limit=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_exact_search_is_brute_force(count: int, queries: int, limit: int, seed: int) -> None:
    vectors, asked = unit(count, seed), unit(queries, seed + 1)
    vectors[count // 2] = vectors[0]  # a tie
    ids = np.random.default_rng(seed).permutation(10 * count)[:count].tolist()
    index = VectorIndex(vectors, ids)
    found = index.search(asked, limit)
    for query, ranked in zip(asked, found, strict=True):
        scores = inner_products(vectors, query)
        expected = sorted(zip(-scores, ids, strict=True))[:limit]
        assert ranked == [(number, -loss) for loss, number in expected]


@pytest.mark.parametrize("approximate", [False, True])
def test_batch_single_subset_and_limit_agree(approximate: bool) -> None:
    vectors, asked = unit(2000, 1), unit(40, 2)
    index = VectorIndex(vectors, range(2000), approximate=approximate)
    batch = index.search(asked, 20)
    for query, ranked in zip(asked, batch, strict=True):
        assert index.search(query[None], 20) == [ranked]
        assert index.search(query[None], 1) == [ranked[:1]]
        ids = [number for number, _ in reversed(ranked)]
        assert index.score(query, ids) == [score for _, score in reversed(ranked)]


def test_approximate_search_finds_most_of_the_best() -> None:
    vectors, asked = unit(3000, 3), unit(50, 4)
    exact = VectorIndex(vectors, range(3000)).search(asked, 1)
    near = VectorIndex(vectors, range(3000), approximate=True).search(asked, 1)
    assert sum(one == other for one, other in zip(exact, near, strict=True)) >= 45


def test_no_vectors_find_nothing() -> None:
    assert VectorIndex(np.empty((0, WIDTH), np.float32), []).search(unit(2, 0), 5) == [[], []]


def test_every_block_is_searched_and_ties_are_ranked_by_id() -> None:
    count = 3 * BLOCK + 17
    vectors = unit(count, 5)
    vectors /= 2
    best = [0, BLOCK - 1, BLOCK, 2 * BLOCK + 31, count - 1]
    asked = unit(3, 6)
    vectors[best] = asked[1]
    for queries in (asked, asked[1:2]):
        found = VectorIndex(vectors, range(count)).search(queries, 7)[len(queries) // 2]
        assert [number for number, _ in found][:5] == best
        scores = inner_products(vectors, asked[1])
        assert [score for _, score in found] == sorted(scores.tolist(), reverse=True)[:7]


def test_bad_input_is_named() -> None:
    index = VectorIndex(unit(3, 0), [5, 6, 7])
    with pytest.raises(StoreError, match="2 vectors for 3"):
        VectorIndex(unit(2, 0), [5, 6, 7])
    with pytest.raises(StoreError, match="8 dimensions for vectors of 16"):
        index.search(np.zeros((1, 8), np.float32), 1)
    with pytest.raises(StoreError, match="passage 9 has no vector"):
        index.score(unit(1, 0)[0], [5, 9])
