"""BM25's best passages in another order: by associated words, and by their best paragraph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datastores.errors import StoreError
from datastores.passages.associations import Associations, write_associations
from datastores.passages.bm25 import Bm25Retriever
from datastores.passages.chunks import Chunk
from datastores.passages.reranking import CANDIDATES, Reranker
from datastores.passages.store import PassageStore
from datastores.passages.word_counts import key_of

DELETE = {"delet": {"remov": 0.3}}


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.db")) as store:
        for number in range(20):
            put(store, f"filler {number}", f"Some other note, number {number}.")
        yield store


def put(store: PassageStore, key: str, content: str, heading: str = "") -> None:
    lines = content.count("\n") + 1
    store.add(key.encode(), [(0, Chunk(heading, 1, lines, content))])


def search(
    store: PassageStore, query: str, words: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """The keys of the texts found, best first."""
    associations = Associations({key_of(word): others for word, others in (words or {}).items()})
    found = Reranker(Bm25Retriever(store), associations).search(query, 5)
    return [one.passage.text.decode() for one in found]


def test_an_associated_word_finds_a_passage_and_counts_less_than_the_word(
    passages: PassageStore,
) -> None:
    put(passages, "removing", "Remove a snapshot of the volume.")
    put(passages, "making", "Make a snapshot of the volume.")
    assert search(passages, "deleting snapshots", DELETE) == ["removing", "making"]
    assert search(passages, "delete it", DELETE) == ["removing"], "although no passage says so"
    assert search(passages, "delete it") == []
    put(passages, "deleting", "Delete a snapshot of the volume.")
    assert search(passages, "delete a snapshot", DELETE) == ["deleting", "removing", "making"]


def test_a_rare_word_outweighs_associates(passages: PassageStore) -> None:
    put(passages, "rare", "The walrus eats clams.")
    for number in range(3):
        put(passages, f"removing {number}", "Remove this, remove that, remove everything.")
    assert search(passages, "delete the walrus", DELETE)[0] == "rare"


def test_words_of_one_paragraph_belong_together(passages: PassageStore) -> None:
    scattered = "List all images.\n\nPrune the build cache.\n\nRename a volume.\n\nStop all."
    together = "List the networks.\n\nStop it.\n\nPrune images of a volume.\n\nShow a log here."
    put(passages, "scattered", scattered, "docker")
    put(passages, "together", together, "docker")
    assert search(passages, "docker: prune volume images") == ["together", "scattered"]


def test_texts_limit_a_search_and_a_query_may_be_empty(passages: PassageStore) -> None:
    put(passages, "one", "A walrus.")
    put(passages, "two", "A walrus and a walrus.")
    reranker = Reranker(Bm25Retriever(passages), Associations())
    found = reranker.search("walrus", 5, {b"one"})
    assert [one.passage.text for one in found] == [b"one"]
    assert reranker.search("?!", 5) == reranker.search("giraffe", 5) == []


def test_a_passage_may_have_words_in_its_heading_alone(passages: PassageStore) -> None:
    put(passages, "rule", "* * *", "Walrus")
    assert search(passages, "walrus") == ["rule"]


def test_as_many_as_wanted_are_found(passages: PassageStore) -> None:
    for number in range(CANDIDATES):
        put(passages, f"more {number}", f"One more note, number {number}.")
    reranker, every = Reranker(Bm25Retriever(passages), Associations()), len(passages)
    assert len(reranker.search("note", 1)) == CANDIDATES < every
    assert len(reranker.search("note", every)) == every


def test_associations_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    write_associations(path, "A heading.", DELETE)
    assert path.read_text() == "# A heading.\ndelet remov:30\n"
    read = Associations.read(path)
    assert read.of(key_of("delet")) == DELETE["delet"]
    assert read.of(key_of("walrus")) == {}
    for damaged in (b"delet remov", b"delet remov:much", b"\xff\xfe"):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"words.txt is damaged \(.*\): reinstall"):
            Associations.read(path)


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
    ranked = Reranker(retriever, Associations()).search(question, 5)
    assert list(retriever.relevant(question, ranked)) == ranked != []
    assert len(counted) == len(set(counted)) > 1
