"""Scores of a few passages are FTS5's own, and are made without a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.passages.bm25 import Bm25Retriever
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from datastores.passages.subset_scores import SubsetScorer

WORDS = ("archive", "copies", "snapshot", "volume", "encrypting", "keys", "mounted", "disks", "net")


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    store = PassageStore.open(tmp_path / "passages.sqlite")
    for number in range(40):
        words = [WORDS[(number * place + place) % len(WORDS)] for place in range(3 + number % 11)]
        chunk = Chunk(f"{WORDS[number % 4]} page", 1, 1, " ".join(words))
        store.add(bytes([number]), [(0, chunk)])
    yield store
    store.close()


@pytest.mark.parametrize(
    "query",
    ["archives", "encrypted key", "mount the disk and copy volumes", "snapshot snapshots", "page"],
)
def test_scores_are_those_of_a_search(passages: PassageStore, query: str) -> None:
    (ranked,) = Bm25Retriever(passages).search([query], 50)
    scorer = SubsetScorer(PassageStore(passages.store.new_connection()))
    ids = [scored.passage.id for scored in ranked]
    expected = [scored.score for scored in ranked]
    assert expected
    (scores,) = scorer.score([query], ids)
    assert scores == pytest.approx(expected)
    assert scorer.score([query, query], ids[:3]) == [scores[:3], scores[:3]]


def test_a_passage_that_shares_no_word_or_is_gone_scores_nothing(passages: PassageStore) -> None:
    (found,) = Bm25Retriever(passages).search(["archive"], 1)
    scorer = SubsetScorer(PassageStore(passages.store.new_connection()))
    assert scorer.score(["zebra", ""], [found[0].passage.id]) == [[0.0], [0.0]]
    assert scorer.score(["archive"], [-5]) == [[0.0]]


def test_an_empty_store_scores_nothing(tmp_path: Path) -> None:
    store = PassageStore.open(tmp_path / "passages.sqlite")
    assert SubsetScorer(store).score(["archive"], [1]) == [[0.0]]
    store.close()
