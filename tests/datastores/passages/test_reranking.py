"""BM25's best passages in another order: by other words, and by their best item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datastores.passages.bm25 import Bm25Retriever
from datastores.passages.chunks import Chunk
from datastores.passages.reranking import CANDIDATES, OTHER_WORDS, Reranker
from datastores.passages.store import PassageStore
from datastores.passages.translations import Translations

OTHER = {"tusker": "walru", "breakfast": "feed", "bring": "feed"}
MANY = 400
DELETE = {"delet": "100 remov:3000"}


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.db")) as store:
        for number in range(20):
            put(store, f"filler {number}", f"Some other note, number {number}.")
        yield store


def put(store: PassageStore, key: str, content: str, heading: str = "") -> None:
    lines = content.count("\n") + 1
    store.add(key.encode(), [(0, Chunk(heading, 1, lines, content))])


def search(store: PassageStore, query: str, lines: Mapping[str, str] | None = None) -> list[str]:
    """The keys of the texts found, best first."""
    found = Reranker(Bm25Retriever(store), Translations(lines)).search(query, 5)
    return [one.passage.text.decode() for one in found]


def test_another_word_finds_a_passage_and_counts_less_than_the_word(
    passages: PassageStore,
) -> None:
    put(passages, "removing", "Remove a snapshot of the volume.")
    put(passages, "making", "Make a snapshot of the volume.")
    assert search(passages, "deleting snapshots", DELETE) == ["removing", "making"]
    assert search(passages, "delete it", DELETE) == ["removing"], "although no passage says so"
    assert search(passages, "delete it") == []
    put(passages, "deleting", "Delete a snapshot of the volume.")
    assert search(passages, "delete a snapshot", DELETE) == ["deleting", "removing", "making"]


def test_a_rare_word_outweighs_others(passages: PassageStore) -> None:
    put(passages, "rare", "The walrus eats clams.")
    for number in range(3):
        put(passages, f"removing {number}", "Remove this, remove that, remove everything.")
    assert search(passages, "delete the walrus", DELETE)[0] == "rare"


def test_words_of_one_item_belong_together(passages: PassageStore) -> None:
    scattered = "- List all images.\n- Prune the build cache.\n- Rename a volume.\n- Stop all."
    together = "- List the networks.\n- Stop it.\n- Prune images of a volume.\n- Show a log here."
    put(passages, "scattered", scattered, "docker")
    put(passages, "together", together, "docker")
    assert search(passages, "docker: prune volume images") == ["together", "scattered"]


def test_texts_limit_a_search_and_a_query_may_be_empty(passages: PassageStore) -> None:
    put(passages, "one", "A walrus.")
    put(passages, "two", "A walrus and a walrus.")
    reranker = Reranker(Bm25Retriever(passages), Translations())
    found = reranker.search("walrus", 5, {b"one"})
    assert [one.passage.text for one in found] == [b"one"]
    assert reranker.search("?!", 5) == reranker.search("giraffe", 5) == []


def test_a_passage_may_have_words_in_its_heading_alone(passages: PassageStore) -> None:
    put(passages, "rule", "* * *", "Walrus")
    assert search(passages, "walrus") == ["rule"]


def test_as_many_as_wanted_are_found(passages: PassageStore) -> None:
    for number in range(CANDIDATES):
        put(passages, f"more {number}", f"One more note, number {number}.")
    reranker, every = Reranker(Bm25Retriever(passages), Translations()), len(passages)
    assert len(reranker.search("note", 1)) == CANDIDATES < every
    assert len(reranker.search("note", every)) == every


def test_ranking_and_relevance_count_nothing_twice(
    passages: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(passages, "one", "The walrus keeps brass telescopes.")
    counted: list[tuple[str, tuple[object, ...]]] = []
    read = passages.store.rows

    def rows(sql: str, values: tuple[object, ...] = ()) -> Any:
        if "count(*)" in sql:
            counted.append((sql, values))
        return read(sql, values)

    monkeypatch.setattr(passages.store, "rows", rows)
    retriever, question = Bm25Retriever(passages), "Which telescopes does the walrus keep?"
    ranked = Reranker(retriever, Translations()).search(question, 5)
    assert list(retriever.relevant(question, ranked)) == ranked != []
    assert len(counted) == len(set(counted)) > 1


def test_the_most_frequent_other_words_find_candidates(passages: PassageStore) -> None:
    others = " ".join(f"other{number}:50" for number in range(OTHER_WORDS))
    put(passages, "removing", "Remove a snapshot.")
    assert search(passages, "delete it", {"delet": f"100 delet:60 {others} remov:9000"}) == []
    assert search(passages, "delete it", {"delet": f"100 delet:60 remov:40 {others}"})


def test_what_fits_is_relevant_whichever_words_it_shares(passages: PassageStore) -> None:
    put(passages, "walrus", "Feed the walrus.")
    lines = {word: f"5 {word}:10 {other}:100" for word, other in OTHER.items()}

    def relevant(question: str) -> list[bytes]:
        reranker = Reranker(Bm25Retriever(passages), Translations(lines))
        found = reranker.relevant(question, reranker.search(question, 5))
        assert not list(Bm25Retriever(passages).relevant(question, found))
        return [one.passage.text for one in found]

    three, two = "bring tusker breakfast", "tusker breakfast"
    assert relevant(three) == relevant(two) == [b"walrus"]
    assert not relevant("bring tusker paper, ink, pencils, scissors and glue")
    for number in range(MANY):
        put(passages, f"more {number}", f"One more note, number {number}.")
    assert relevant(three) == [b"walrus"]
    assert not relevant(two), "among many, something fits two words by chance"
