"""Recall: counts that follow a context as it grows, and when it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.drafters.ngram_ranking import LONGEST, ContextNgrams

TOKENS = st.lists(st.integers(0, 2), max_size=30)


def brute_force(tokens: list[int]) -> dict[tuple[int, ...], dict[int, int]]:
    found: dict[tuple[int, ...], dict[int, int]] = {}
    for at, token in enumerate(tokens):
        for length in range(1, min(at, LONGEST) + 1):
            after = found.setdefault(tuple(tokens[at - length : at]), {})
            after[token] = after.get(token, 0) + 1
    return found


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=4))
def test_counts_equal_brute_force_from_context_to_context(
    contexts: list[tuple[list[int], list[int]]],
) -> None:
    recall = ContextNgrams()
    for beginning, rest in contexts:
        tokens = list(beginning)
        recall.begin(tokens)
        recall.extend()
        assert recall.followers == brute_force(tokens)
        tokens += rest
        recall.extend()
        assert recall.followers == brute_force(tokens)
