"""Winnowing: two texts that share enough tokens keep the same n-gram of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datastores.winnowing import GRAM, MIN_SURE_TOKENS, WINDOW, last_grams, winnow

SIMILAR = st.lists(st.integers(0, 3), max_size=80)
DIFFERENT = st.lists(st.integers(0, 2**32 - 1), max_size=80)


@given(st.one_of(SIMILAR, DIFFERENT), st.integers(0, 80))
def test_the_end_of_a_context_is_found_in_every_text_that_has_it(text: list[int], end: int) -> None:
    context = text[:end]
    if end > len(text) or len(context) < MIN_SURE_TOKENS:
        return
    grams, offsets = winnow(np.array(text, np.uint32))
    kept = set(zip(grams.tolist(), offsets.tolist(), strict=True))
    found = {(gram, end - 1 - after) for after, gram in enumerate(last_grams(context, WINDOW))}
    assert found & kept


@given(st.one_of(SIMILAR, DIFFERENT))
def test_the_smallest_of_each_window_is_kept(text: list[int]) -> None:
    _, offsets = winnow(np.array(text, np.uint32))
    needed = set()
    for end in range(MIN_SURE_TOKENS, len(text) + 1):
        grams = last_grams(text[:end], WINDOW)
        needed.add(end - 1 - grams.index(min(grams)))
    assert set(offsets.tolist()) == needed


def test_a_short_context_has_few_n_grams() -> None:
    assert last_grams([7] * (GRAM - 1), 3) == []
    assert len(last_grams([7] * (GRAM + 1), 3)) == 2
    assert last_grams([9, *[7] * GRAM], 1) == last_grams([7] * GRAM, WINDOW)


def test_a_small_part_of_the_n_grams_is_kept() -> None:
    tokens = np.random.default_rng(1).integers(0, 50_000, 20_000).astype(np.uint32)
    share = len(winnow(tokens)[0]) / len(tokens)
    assert 1.8 / (WINDOW + 1) < share < 2.2 / (WINDOW + 1)
