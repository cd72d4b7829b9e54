"""The draft head proposes a tree from the state alone, and changes no answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.budget.continuation import UNKNOWN_STATE
from engines.draft_tree import HEAD
from engines.drafters.head import MAX_DEPTH, RECENT, Head, HeadDrafter
from engines.drafters.model_drafter import MAX_CHILDREN, MAX_LOGIT_GAP, likeliest
from engines.drafters.prompt_lookup import PromptLookup
from engines.sampler import Sampling, make_sampler
from engines.step import Context
from tests.engines.scripted import VOCABULARY, ScriptedTarget
from tests.engines.test_decode import NEVER, fixed, run, tokens

WIDTH = ScriptedTarget().width


def head(seed: int = 0, known: int = VOCABULARY, size: int = 8, rank: int = 4) -> Head:
    """One with random weights, which drafts `known` of the scripted tokens."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return random.normal(0.0, 1.0, shape).astype(np.float32)

    network = {
        "state": matrix(size, WIDTH),
        "recent": matrix(size, (RECENT - 1) * rank),
        "gate": matrix(2 * size, size + rank),
        "up": matrix(2 * size, size + rank),
        "down": matrix(size, 2 * size),
        "output": matrix(rank, size),
    }
    chosen = random.choice(VOCABULARY, known, replace=False)
    embeddings = np.concatenate([matrix(known, rank), np.zeros((1, rank), np.float32)])
    return Head("scripted", VOCABULARY, chosen, network, matrix(known, rank), embeddings)


@given(st.integers(0, 99), st.integers(1, VOCABULARY), st.integers(1, 12), st.data())
def test_a_draft_is_a_tree_of_its_own_vocabulary(
    seed: int, known: int, limit: int, data: st.DataObject
) -> None:
    made = head(seed, known)
    before = data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6))
    hidden = np.random.default_rng(seed).normal(0.0, 2.0, WIDTH).astype(np.float32)
    temperature = data.draw(st.sampled_from([0.0, 1.0]))
    draw = make_sampler(Sampling(temperature, repeat_penalty=1.1))
    context = Context(before.copy(), hidden, temperature, draw)
    tree = HeadDrafter(made, NEVER).propose(context, limit)
    assert context.tokens == before
    assert tree.tokens[0] == before[-1]
    assert tree.drafted <= limit
    assert max(tree.depths()) <= MAX_DEPTH
    assert set(tree.tokens[1:]) <= set(made.tokens.tolist())
    assert all(origin == HEAD for origin in tree.origins[1:])
    assert all(0.0 < share <= 1.0 for share in tree.probabilities)
    for children in tree.children():
        assert sum(tree.probabilities[row] for row in children.values()) <= 1.001


@given(st.integers(0, 999), st.integers(1, 400))
def test_its_candidates_are_those_of_a_softmax_over_all_tokens(seed: int, known: int) -> None:
    random = np.random.default_rng(seed)
    row, chosen = np.full(400, -np.inf, np.float32), random.permutation(400)[:known]
    row[chosen] = random.normal(0.0, 5.0, known)
    softmax = np.exp(row - row.max(), dtype=np.float64)
    softmax /= softmax.sum()
    first = np.argsort(-softmax)[:MAX_CHILDREN]
    expected = {token: softmax[token] for token in first if row.max() - row[token] < MAX_LOGIT_GAP}
    for vocabulary in (chosen, None):
        found = likeliest(row, vocabulary)
        assert [token for token, _ in found] == list(expected)
        assert np.allclose([share for _, share in found], list(expected.values()), rtol=1e-5)


def test_a_state_that_is_not_known_is_not_drafted_from() -> None:
    tree = HeadDrafter(head(), NEVER).propose(Context([1, 2], UNKNOWN_STATE, 0.0), 8)
    assert tree.drafted == 0


def test_nothing_is_drafted_behind_a_stop() -> None:
    every = frozenset(range(VOCABULARY))
    state = np.ones(WIDTH, np.float32)
    tree = HeadDrafter(head(), every).propose(Context([1, 2], state, 0.0), 8)
    assert set(tree.depths()) <= {0, 1}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_answers_are_the_same_with_it(temperature: float, rows: int) -> None:
    sampling = Sampling(temperature, seed=3)
    plain = run([1, 2, 3], [], fixed(0), sampling)
    drafted = run([1, 2, 3], [PromptLookup(), HeadDrafter(head(), NEVER)], fixed(rows), sampling)
    assert tokens(drafted) == tokens(plain)
    assert any(one.drafter == "head" for step in drafted for one in step.proposals)
