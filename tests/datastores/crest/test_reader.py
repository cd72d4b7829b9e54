"""Reading: the two tiers are one store, that of brute force over the texts of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from math import log2
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.crest import reader as crest_reader
from datastores.crest.build import MAX_NGRAM
from datastores.crest.format import CrestEntry, hashes
from datastores.crest.reader import CrestReader, CrestTree, JoinedEntry
from datastores.crest.selection import MAX_CONTINUATION, MAX_NODES
from datastores.crest.store import CrestStore
from datastores.crest.texts import TokenText
from tests.datastores.crest.reference import strings, text_of, texts, tree, unfold

EVERY = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CrestStore]:
    with closing(CrestStore.open(tmp_path / "crest.db", 1 << 24)) as opened:
        yield opened


def trees(store: CrestStore, docs: list[TokenText]) -> dict[tuple[int, ...], CrestTree]:
    """What a lookup of every n-gram of `docs` that something follows finds for it.

    n-grams that share a mark, which the store may take for each other, are left out.
    """
    ngrams = [ngram for length in range(1, MAX_NGRAM + 1) for ngram in strings(docs, length)]
    marks = Counter(hashes(ngram, MAX_NGRAM)[-1] & 0xFFFF for ngram in ngrams)
    with closing(CrestReader(store.store.path)) as reader:
        return {
            ngram: reader.lookup(ngram)[0]
            for ngram in ngrams
            if marks[hashes(ngram, MAX_NGRAM)[-1] & 0xFFFF] == 1 and tree(docs, ngram, 1, EVERY)
        }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, st.sets(st.integers(0, 5)))
def test_two_tiers_are_brute_force_over_the_texts_of_both(
    store: CrestStore, docs: list[TokenText], added: set[int]
) -> None:
    tiers = [
        [one for number, one in enumerate(docs) if (number in added) == is_added]
        for is_added in (False, True)
    ]
    store.retain([])
    store.rebuild(tiers[0])
    assert store.update(tiers[1])
    found = trees(store, docs)
    store.rebuild(docs)
    rebuilt = trees(store, docs)
    for ngram, entry in found.items():
        paths = tree(docs, ngram, MAX_CONTINUATION, EVERY)
        # A tier has no n-gram that nothing follows in it.
        occurrences = sum(
            strings(tier, len(ngram))[ngram] for tier in tiers if tree(tier, ngram, 1, EVERY)
        )
        drafted = unfold(entry)
        assert set(drafted) <= set(paths)
        if len(paths) <= MAX_NODES:
            assert set(drafted) == set(paths) == set(unfold(rebuilt[ngram]))
        assert abs(log2(entry.count / occurrences)) <= 0.25
        for path, chance in drafted.items():
            # Half octaves of two n-gram counts and of one probability are rounded.
            if len(path) == 1:
                assert abs(log2(chance * occurrences / paths[path])) <= 0.75


def test_a_tree_in_one_tier_is_that_tier(store: CrestStore) -> None:
    store.rebuild([text_of(0, [7, 8, 1] * 3, kind=1)])
    alone = trees(store, [text_of(0, [7, 8, 1])])
    store.update([text_of(1, [3, 4, 5] * 3, kind=2)])
    assert trees(store, [text_of(0, [7, 8, 1])]) == alone


@pytest.mark.parametrize("resident", [0, 1, 1 << 20])
def test_pages_in_memory_are_those_on_disk(
    store: CrestStore, monkeypatch: pytest.MonkeyPatch, resident: int
) -> None:
    docs = [text_of(number, [number, 8, 9, number % 3] * 40) for number in range(30)]
    store.rebuild(docs[1:])
    store.update(docs[:1])
    everywhere = {ngram: unfold(entry) for ngram, entry in trees(store, docs).items()}
    monkeypatch.setattr(crest_reader, "MAX_RESIDENT_PAGES", resident)
    with closing(CrestReader(store.store.path)) as reader:
        held = [tier.resident is not None for tier in reader._tiers.values()]
    assert held == {0: [False, False], 1: [True, False], 1 << 20: [True, True]}[resident]
    assert {ngram: unfold(entry) for ngram, entry in trees(store, docs).items()} == everywhere


def test_joined_trees_add_their_counts() -> None:
    one = CrestEntry(4.0, 1, [0, 8, 9], [1.0, 0.5, 1.0], [(1, 2), (2, 3), (3, 3)])
    two = CrestEntry(2.0, 2, [0, 9, 8], [1.0, 0.5, 0.5], [(1, 3), (3, 3), (3, 3)])
    both = JoinedEntry(one, two)
    assert (both.count, both.kind) == (6.0, 1)
    assert unfold(both) == {(8,): 3 / 6, (9,): 1 / 6, (8, 9): 2 / 3}
    assert unfold(JoinedEntry(two, one)) == unfold(both)


def test_children_are_joined_in_any_order() -> None:
    one = CrestEntry(4.0, 1, [0, 7, 8, 9], [1.0, 0.5, 0.5, 1.0], [(1, 3), (3, 4), (4, 4), (4, 4)])
    two = CrestEntry(2.0, 2, [0, 8, 9], [1.0, 1.0, 0.5], [(1, 2), (2, 3), (3, 3)])
    backwards = JoinedEntry(one, two)
    for row in reversed(range(*backwards.followers(0))):
        backwards.followers(row)
    assert unfold(backwards) == unfold(JoinedEntry(one, two))
    assert len(backwards.tokens) == len(unfold(backwards)) + 1
