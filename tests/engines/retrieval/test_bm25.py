"""BM25 ranks passages, scores subsets alike, and tells what concerns a question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from engines.retrieval.bm25 import Bm25Retriever, any_of
from engines.retrieval.question_words import informative_words
from tests.datastores.passages.pages import open_pages


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(open_pages(tmp_path)) as store:
        yield store


def test_the_passage_that_shares_most_comes_first(passages: PassageStore) -> None:
    retriever = Bm25Retriever(passages)
    found, nothing, empty = retriever.search(["extract a tar archive", "giraffe", "?!"], 5)
    assert [scored.passage.text for scored in found][:2] == [b"tar", b"zip"]
    assert found[0].passage.chunk.heading == "tar"
    assert [nothing, empty] == [[], []]


def test_the_best_of_some_texts_are_those_among_all(passages: PassageStore) -> None:
    retriever, words = Bm25Retriever(passages), ["archive", "contents", "a"]
    ranked = retriever.search_words(words, -1)
    texts = {one.passage.text for one in ranked[1:]} | {b"not here"}
    among = [one for one in ranked if one.passage.text in texts]
    assert 1 <= len(among) < len(ranked)
    assert retriever.search_words(words, 1, texts) == among[:1]
    assert retriever.search_words(words, -1, texts) == among
    assert retriever.search_words(words, 5, ()) == []


def test_words_of_a_query_are_never_operators(passages: PassageStore) -> None:
    words = informative_words('NEAR "x" AND (heading:')
    assert any_of(words) == '"near" OR "x" OR "heading"'
    assert informative_words("how do i") == ["how", "do", "i"], "nothing else to go by"
    assert Bm25Retriever(passages).search(['tar" NEAR( *', "-tar"], 1)


def test_relevant_is_what_shares_the_rare_words(passages: PassageStore) -> None:
    retriever = Bm25Retriever(passages)

    def relevant(query: str) -> bool:
        return bool(list(retriever.relevant(query, retriever.search([query], 1)[0])))

    assert relevant("How do I extract a tar archive?")
    assert relevant("tar")
    assert not relevant("Which archive holds the sonnets of Shakespeare?")
    assert not relevant("Who wrote a directory of giraffes, unicorns and zebras?")
    assert not relevant("?!")


def test_a_greeting_concerns_no_passage(passages: PassageStore) -> None:
    retriever = Bm25Retriever(passages)
    notes = Chunk("Meeting", 1, 2, "How are you? asked his sister, and did not wait. Hello, hi!")
    passages.add(b"notes", [(0, notes), (0, Chunk("make", 3, 4, "You use make to build."))])

    def relevant(query: str) -> list[str]:
        found = retriever.relevant(query, retriever.search([query], 5)[0])
        return [one.passage.chunk.heading for one in found]

    for greeting in ("hi", "Hello!", "How are you?", "hey, thanks", "yes please"):
        assert relevant(greeting) == [], greeting
    assert relevant("How do I use make?") == ["make"]
    assert relevant("Hi, what did his sister ask?") == ["Meeting"]


def test_one_word_in_common_is_enough_where_nothing_else_can_be_meant(
    passages: PassageStore,
) -> None:
    office = Chunk("Office", 1, 1, "The router of the office is at 10.0.3.7, in the cupboard.")
    passages.add(b"office", [(0, office)])

    def relevant(query: str) -> bool:
        retriever = Bm25Retriever(passages)
        return bool(list(retriever.relevant(query, retriever.search([query], 1)[0])))

    assert not relevant("What is the router's address?")
    assert not relevant("What is the capital of France?")
    assert relevant("What is in the cupboard?"), "no other passage holds that word"
    passages.add(b"kitchen", [(0, Chunk("Kitchen", 1, 1, "The cupboard holds two plates."))])
    assert not relevant("What is in the cupboard?"), "of many passages, some hold any word"
    assert relevant("What is the office?"), "unless they are about it"
    assert relevant("Is the router in a cupboard?")
    assert relevant("Is the router of gold in the office?")


def test_relevance_does_not_depend_on_what_is_judged_at_once(passages: PassageStore) -> None:
    retriever = Bm25Retriever(passages)
    query = "How do I list or extract an archive?"
    ranked = retriever.search([query], 10)[0]
    together = list(retriever.relevant(query, ranked))
    assert list(retriever.relevant(query, ranked, batch=1)) == together
    assert [one for one in ranked if one in together] == together


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.sampled_from(["tar", "zip", "list", "archive", "a", "x"]),
        max_size=5,
    )
)
def test_a_subset_is_scored_as_in_the_whole_store(passages: PassageStore, words: list[str]) -> None:
    retriever = Bm25Retriever(passages)
    query = " ".join(words)
    best = {scored.passage.id: scored.score for scored in retriever.search([query], 10)[0]}
    ids = [row["id"] for row in passages.store.rows("SELECT id FROM chunks")]
    assert retriever.score([query], ids) == [[best.get(number, 0.0) for number in ids]]
    for number in ids:
        assert retriever.score([query], [number]) == [[best.get(number, 0.0)]]
