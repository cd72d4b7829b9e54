"""Prompt lookup and token recycling: what they propose, and how they follow the context."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.draft_tree import DraftTree, root_only
from engines.drafters.prompt_lookup import MAX_MATCH_TOKENS, PromptLookup
from engines.drafters.token_recycling import TokenRecycling
from engines.step import Context, Step, Timings

HIDDEN = np.zeros(4, np.float32)
SMALL_TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def context(tokens: list[int]) -> Context:
    return Context(tokens, HIDDEN, 0.0)


def lookup(tokens: list[int], limit: int = 5) -> DraftTree:
    drafter = PromptLookup()
    drafter.begin(context(tokens))
    return drafter.propose(context(tokens), limit)


def brute_force(tokens: list[int], limit: int) -> list[int]:
    """The continuation of the longest earlier match of at least 2, most recent among equals."""
    best_end, best_length = -1, 1
    for end in range(1, len(tokens) - 1):
        length = 0
        while (
            length < min(end + 1, MAX_MATCH_TOKENS) and tokens[end - length] == tokens[-1 - length]
        ):
            length += 1
        if length >= best_length and length >= 2:
            best_end, best_length = end, length
    if best_end < 0:
        return []
    following = list(tokens)
    for step in range(limit):
        following.append(following[best_end + 1 + step])
    return following[len(tokens) :]


@given(SMALL_TOKENS, st.integers(1, 6))
def test_prompt_lookup_equals_a_full_scan(tokens: list[int], limit: int) -> None:
    tree = lookup(tokens, limit)
    assert tree.is_chain()
    # The drafter looks at a bounded number of candidates: with 60 tokens it sees them all.
    assert tree.tokens[1:] == brute_force(tokens, limit)


@given(SMALL_TOKENS, SMALL_TOKENS, st.integers(0, 60))
def test_prompt_lookup_moves_between_contexts(one: list[int], other: list[int], cut: int) -> None:
    drafter = PromptLookup()
    for tokens in (one, one[:cut] + other, one, other):
        drafter.begin(context(tokens))
        assert drafter.propose(context(tokens), 4) == lookup(tokens, 4)


def test_prompt_lookup_grows_with_the_context() -> None:
    tokens = [5, 6, 7, 8]
    drafter = PromptLookup()
    drafter.begin(context(tokens))
    for token in (5, 6, 9, 5, 6):
        tokens.append(token)
        assert drafter.propose(context(tokens), 3) == lookup(tokens, 3)
    assert drafter.propose(context(tokens), 3).tokens[1:] == [9, 5, 6]


def test_earlier_occurrences_vote_on_the_first_token() -> None:
    once = lookup([1, 2, 3, 9, 1, 2])
    agreed = lookup([1, 2, 3, 9, 1, 2, 3, 8, 1, 2])
    disputed = lookup([1, 2, 5, 9, 1, 2, 3, 8, 1, 2])
    first = [tree.probabilities[1] for tree in (disputed, once, agreed)]
    assert first == sorted(first)
    assert first[0] < 0.35 < 0.4 < first[1] < 0.6 < first[2]
    # Once a token has come, the match is longer by it, whatever the others said.
    assert disputed.probabilities[2] > disputed.probabilities[1]
    assert disputed.probabilities[2] == once.probabilities[2]


def test_a_copy_is_followed_as_it_would_be_found() -> None:
    text = [*range(100, 160), 7, *range(160, 200)]
    tokens = [*text, 1, 2]
    drafter = PromptLookup()
    drafter.begin(context(tokens))
    for token in [*text, 3, 100, 101]:
        tokens.append(token)
        followed, found = drafter.propose(context(tokens), 6), lookup(tokens, 6)
        assert (followed.tokens, followed.supports) == (found.tokens, found.supports)


def observed(root: int, successors: list[int], logits: list[float]) -> Step:
    return Step(
        position=1,
        tokens=(successors[0],),
        origins=(0,),
        tree=root_only(root),
        path=(0,),
        proposals=(),
        hidden=HIDDEN[None],
        top_tokens=[successors],
        top_logits=np.array([logits], np.float32),
        timings=Timings(0.0, 0.0, 0.0),
        prefill=False,
        finish="",
    )


def test_recycling_grows_a_tree_of_known_successors() -> None:
    drafter = TokenRecycling()
    assert drafter.propose(context([1]), 8).drafted == 0
    drafter.observe(observed(1, [2, 3], [1.0, 0.0]))
    drafter.observe(observed(2, [4, 1], [3.0, 0.0]))
    tree = drafter.propose(context([9, 1]), 4)
    assert tree.tokens[0] == 1
    assert tree.children()[0].keys() == {2, 3}
    assert tree.tokens[1:3] == [2, 4]
    assert tree.drafted == 4


def test_recycling_keeps_the_most_recent_successors() -> None:
    drafter = TokenRecycling()
    drafter.observe(observed(1, [2, 3], [1.0, 0.0]))
    drafter.observe(observed(1, [7, 8], [1.0, 0.0]))
    assert set(drafter.propose(context([5, 1]), 2).tokens[1:]) == {7, 8}


def test_recycling_prefers_what_followed_the_same_pair() -> None:
    drafter = TokenRecycling()
    drafter.begin(context([0, 4, 1, 9]))
    drafter.observe(observed(1, [2], [1.0]))
    drafter.begin(context([0, 5, 1, 9]))
    drafter.observe(observed(1, [7], [1.0]))
    assert drafter.propose(context([4, 1]), 1).tokens[1:] == [2]
    assert drafter.propose(context([5, 1]), 1).tokens[1:] == [7]
    assert drafter.propose(context([6, 1]), 1).tokens[1:] == [7]
