"""Building: trees equal brute force, budgets hold, and order makes no difference."""

from __future__ import annotations

from collections import Counter
from math import log2
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.crest.build import MAX_NGRAM, BuiltStore, build, count, select
from datastores.crest.format import (
    PROBABILITIES,
    CrestEntry,
    decode,
    find,
    hash_columns,
    hashes,
    place,
)
from datastores.crest.selection import MAX_CONTINUATION, MAX_NODES
from datastores.crest.texts import TokenText
from tests.datastores.crest.reference import Path, strings, text_of, texts, tree, unfold

AMPLE = 1 << 22
EVERY = 1 << 20


def read(built: BuiltStore) -> dict[int, bytes]:
    return dict(built.pages)


def entry(built: BuiltStore, pages: dict[int, bytes], ngram: tuple[int, ...]) -> CrestEntry | None:
    number, mark = place(hashes(ngram, len(ngram))[-1], built.page_count)
    data = find(pages.get(number, b"\0"), mark)
    return decode(data, built.ids.tolist()) if data else None


def text_like(tokens: int, seed: int = 0) -> list[TokenText]:
    """Texts of 500 tokens, some words far more common than others, as in a text."""
    draws = np.random.default_rng(seed).zipf(1.3, tokens) % 5000
    return [text_of(at, draws[at : at + 500].tolist()) for at in range(0, tokens, 500)]


@given(texts)
def test_every_tree_is_that_of_brute_force(docs: list[TokenText]) -> None:
    built = build(docs, AMPLE)
    pages = read(built)
    ngrams = [
        found for length in range(1, MAX_NGRAM + 1) for found in strings(docs, length).items()
    ]
    marks = Counter(place(hashes(ngram, 4)[-1], built.page_count) for ngram, _ in ngrams)
    for ngram, occurrences in ngrams:
        paths = tree(docs, ngram, MAX_CONTINUATION, EVERY)
        found = entry(built, pages, ngram)
        if marks[place(hashes(ngram, 4)[-1], built.page_count)] > 1:
            continue
        assert (found is not None) == bool(paths)
        if found is not None:
            must_agree(found, occurrences, paths)


def must_agree(found: CrestEntry, occurrences: int, paths: dict[Path, int]) -> None:
    """The decoded tree holds `paths` and, to the nearest half octave, their probabilities.

    Of more than a tree may hold it keeps those worth most, which is not to say most common.
    """
    assert set(unfold(found)) <= set(paths)
    assert len(unfold(found)) == min(len(paths), MAX_NODES)
    assert abs(log2(found.count / occurrences)) <= 0.25
    for path, chance in unfold(found).items():
        exact = paths[path] / (paths[path[:-1]] if path[:-1] else occurrences)
        assert chance == PROBABILITIES[min(15, round(-2 * log2(exact)))]


@given(texts, st.randoms(use_true_random=False))
def test_the_order_of_texts_makes_no_difference(docs: list[TokenText], random: Random) -> None:
    shuffled = random.sample(docs, len(docs))
    for budget in (AMPLE, 24000):
        assert read(build(docs, budget)) == read(build(shuffled, budget))


@given(texts, st.integers(1, 30))
def test_bounds_on_memory_make_no_difference(docs: list[TokenText], strings: int) -> None:
    for budget in (AMPLE, 24000):
        whole = build(docs, budget)
        with pytest.MonkeyPatch.context() as lowered:
            lowered.setattr("datastores.crest.build.PART_STRINGS", strings)
            lowered.setattr("datastores.crest.format.PAGES_AT_ONCE", 2)
            lowered.setattr("datastores.crest.columns.SPOOLED_BYTES", 64)
            lowered.setattr("datastores.crest.counting.SLICE_POSITIONS", 7)
            lowered.setattr("datastores.crest.texts.SLICE_POSITIONS", 7)
            lowered.setattr("datastores.crest.counting.BLOCK_POSITIONS", 5)
            bounded = build(docs, budget)
            found = read(bounded)
        assert (found, bounded.ids.tolist()) == (read(whole), whole.ids.tolist())


@pytest.mark.parametrize("budget", [30_000, 1_000_000])
def test_bounds_on_memory_fill_a_budget_alike(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = text_like(20_000)
    whole = select(count(docs, budget), budget, exact=True)
    monkeypatch.setattr("datastores.crest.build.PART_STRINGS", 3000)
    parts = select(count(docs, budget), budget, exact=True)
    assert (read(parts), parts.uses.tolist()) == (read(whole), whole.uses.tolist())


@pytest.mark.parametrize("budget", [30_000, 100_000, 1_000_000])
def test_a_budget_is_kept_and_used(budget: int) -> None:
    built = build(text_like(60_000), budget)
    used = sum(map(len, read(built).values())) + 2 * len(built.ids)
    assert 0.5 * budget < used + 20480 <= budget


def test_more_bytes_keep_what_fewer_kept() -> None:
    docs = text_like(40_000)
    counted = count(docs, 400_000)
    small, large = select(counted, 50_000), select(counted, 400_000)
    assert large.entry_count > 2 * small.entry_count


def test_wide_trees_of_rare_tokens_fit() -> None:
    docs = [text_of(n, [7, 2**31 + n]) for n in range(20_000)]
    built = build(docs, AMPLE)
    found = entry(built, read(built), (7,))
    assert found is not None
    assert len(unfold(found)) == MAX_NODES


def test_nothing_gives_an_empty_store() -> None:
    assert read(build([], AMPLE)) == {}
    assert read(build([text_of(0, [])], AMPLE)) == {}


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4))
def test_hashes_of_arrays_are_those_of_lookups(tokens: list[int]) -> None:
    columns = [np.array([token], dtype=np.uint32) for token in tokens]
    for length in range(1, 5):
        assert hash_columns(columns[-length:])[0] == hashes(tokens, 4)[length - 1]


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=60, unique=True), st.data())
def test_entries_are_found_by_their_marks(marks: list[int], data: st.DataObject) -> None:
    marks.sort()
    bodies = [bytes([index]) * 2 * (index % 4 + 1) for index in range(len(marks))]
    page = bytes([len(marks)]) + np.array(marks, "<u2").tobytes()
    page += bytes(len(body) // 2 for body in bodies) + b"".join(bodies)
    for mark, body in zip(marks, bodies, strict=True):
        assert find(page, mark) == body
    other = data.draw(st.integers(0, 65535).filter(lambda value: value not in marks))
    assert find(page, other) == b""
