"""N-gram counts of a context: right as it grows, and when it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.drafters.ngram_ranking import MAX_CONTEXT_NGRAM, ContextNgrams

TOKENS = st.lists(st.integers(0, 2), max_size=30)


def brute_force(tokens: list[int]) -> dict[tuple[int, ...], dict[int, int]]:
    found: dict[tuple[int, ...], dict[int, int]] = {}
    for at, token in enumerate(tokens):
        for length in range(1, min(at, MAX_CONTEXT_NGRAM) + 1):
            after = found.setdefault(tuple(tokens[at - length : at]), {})
            after[token] = after.get(token, 0) + 1
    return found


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=4))
def test_counts_equal_brute_force_from_context_to_context(
    contexts: list[tuple[list[int], list[int]]],
) -> None:
    ngrams = ContextNgrams()
    for beginning, rest in contexts:
        tokens = list(beginning)
        ngrams.begin(tokens)
        ngrams.extend()
        assert ngrams.followers == brute_force(tokens)
        tokens += rest
        ngrams.extend()
        assert ngrams.followers == brute_force(tokens)
