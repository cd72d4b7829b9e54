"""BM25's best passages in another order: by other words, and by their best item."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assets.recipe.retrieval import translations
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.reranking import CANDIDATES, OTHER_WORDS, Reranker
from engines.retrieval.translations import Translations

OTHER = {"tusker": "walru", "breakfast": "feed", "bring": "feed"}
MANY = 1200
DELETE = {"delet": "100 remov:3000"}


@pytest.fixture
def few(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.db")) as store:
        fill(store, range(5))
        yield store


@pytest.fixture
def passages(few: PassageStore) -> PassageStore:
    fill(few, range(5, 20))
    return few


def fill(store: PassageStore, numbers: Iterable[int]) -> None:
    for number in numbers:
        put(store, f"filler {number}", f"Some other note, number {number}.")


def put(store: PassageStore, key: str, content: str, heading: str = "") -> None:
    lines = content.count("\n") + 1
    store.add(key.encode(), [(0, Chunk(heading, 1, lines, content))])


def search(store: PassageStore, query: str, lines: Mapping[str, str] | None = None) -> list[str]:
    """The keys of the texts found, best first."""
    found = Reranker(Bm25Retriever(store), Translations(lines), query).search(5)
    return [one.passage.text.decode() for one in found]


def relevant(
    store: PassageStore,
    query: str,
    translations: Translations,
    texts: Collection[bytes] | None = None,
    sharing_fit: float = 0.0,
) -> list[str]:
    """The same of those that are relevant."""
    reranker = Reranker(Bm25Retriever(store), translations, query, texts)
    found = reranker.relevant(reranker.search(5), sharing_fit)
    return [one.passage.text.decode() for one in found]


def shared(store: PassageStore, query: str) -> list[str]:
    """Those that are relevant by the words that they share."""
    retriever = Bm25Retriever(store)
    ranked = Reranker(retriever, Translations(), query).search(5)
    return [one.passage.text.decode() for one in retriever.relevant(query, ranked)]


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
    found = Reranker(Bm25Retriever(passages), Translations(), "walrus", {b"one"}).search(5)
    assert [one.passage.text for one in found] == [b"one"]
    assert search(passages, "?!") == search(passages, "giraffe") == []


def test_a_passage_may_have_words_in_its_heading_alone(passages: PassageStore) -> None:
    put(passages, "rule", "* * *", "Walrus")
    assert search(passages, "walrus") == ["rule"]


def test_as_many_as_wanted_are_found(passages: PassageStore) -> None:
    for number in range(CANDIDATES):
        put(passages, f"more {number}", f"One more note, number {number}.")
    reranker, every = Reranker(Bm25Retriever(passages), Translations(), "note"), len(passages)
    assert len(reranker.search(1)) == CANDIDATES < every
    assert len(reranker.search(every)) == every


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
    question = "Which telescopes does the walrus keep?"
    reranker = Reranker(Bm25Retriever(passages), Translations(), question)
    ranked = reranker.search(5)
    assert reranker.relevant(ranked) == ranked != []
    assert len(counted) == len(set(counted)) > 1


def test_the_most_frequent_other_words_find_candidates(passages: PassageStore) -> None:
    others = " ".join(f"other{number}:50" for number in range(OTHER_WORDS))
    put(passages, "removing", "Remove a snapshot.")
    assert search(passages, "delete it", {"delet": f"100 delet:60 {others} remov:9000"}) == []
    assert search(passages, "delete it", {"delet": f"100 delet:60 remov:40 {others}"})


def test_what_fits_is_relevant_whichever_words_it_shares(passages: PassageStore) -> None:
    put(passages, "walrus", "Feed the walrus.")
    lines = {word: f"5 {word}:10 {other}:100" for word, other in OTHER.items()}
    known, three, two = Translations(lines), "bring tusker breakfast", "tusker breakfast"
    assert relevant(passages, three, known) == relevant(passages, two, known) == ["walrus"]
    assert not shared(passages, three)
    coincidence = "glue tusker on a picture of some breakfast, without scissors"
    others = {word: f"5 {word}:10" for word in ("pictur", "scissor", "glue", "some")}
    assert not relevant(passages, coincidence, Translations(lines | others))
    for number in range(MANY):
        put(passages, f"more {number}", f"One more note, number {number}.")
    assert relevant(passages, three, known) == ["walrus"]
    assert not relevant(passages, two, known), "among many, something fits two words by chance"
    assert relevant(passages, two, known, {b"walrus"}) == ["walrus"], "among one, nothing does"


def test_words_shared_all_over_a_passage_may_be_too_little(passages: PassageStore) -> None:
    query = "tusker breakfast"
    known = Translations({word: f"5 {word}:10" for word in query.split()})
    put(passages, "together", "The tusker has breakfast.", "zoo")
    put(passages, "apart", "A tusker, and " + "more " * 9 + "of it.\n\nNo breakfast today.", "zoo")
    assert relevant(passages, query, known) == ["together", "apart"]
    assert relevant(passages, query, known, sharing_fit=0.8) == ["together"]
    assert len(relevant(passages, query, Translations(), sharing_fit=9.0)) == 2, "not known"


def test_one_word_in_common_is_enough_among_a_few_notes(few: PassageStore) -> None:
    put(few, "office", "The router of the office is at 10.0.3.7, in the cupboard.", "Office")
    for question in ("What is the router's address?", "what’s the router’s IP?", "where's router"):
        assert relevant(few, question, translations()) == ["office"], question
    for question in ("Who wrote a novel about an office?", "What is the capital of France?"):
        assert not relevant(few, question, translations()), question


def test_a_greeting_concerns_no_passage(few: PassageStore) -> None:
    put(few, "meeting", "Hello, or hi: thanks, okay, yes, I was wondering! Anyone? Bye.", "Meeting")
    for greeting in ("hi", "Hello!", "thanks!", "okay", "hey, thanks", "bye", "anyone?"):
        assert search(few, greeting), greeting
        assert not relevant(few, greeting, translations()), greeting


def test_in_another_language_the_rare_words_have_to_be_shared(few: PassageStore) -> None:
    put(few, "auto", "Wie ich das Auto starten kann, wenn die Batterie leer ist.", "Auto")
    put(few, "faehre", "Wir fahren am 3. August nach Dänemark, die Fähre geht um 9 Uhr.", "Urlaub")
    assert relevant(few, "Wann geht die Fähre?", translations()) == ["faehre"]
    assert not relevant(few, "Wie kann ich die Hauptstadt von Frankreich finden?", translations())


class Likes:
    """Finds every question likeliest after the texts with a certain word."""

    def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
        return [0.0 if "Brass" in text else -100.0 for text in texts]


def test_a_model_of_questions_orders_the_best_passages(passages: PassageStore) -> None:
    put(passages, "walrus", "The walrus keeps telescopes.")
    put(passages, "brass", "Brass telescopes.")
    known = Translations({"walru": "5 walru:10", "telescop": "5 telescop:10"})
    retriever, query = Bm25Retriever(passages), "walrus telescopes"
    plain = Reranker(retriever, known, query).search(5)
    asked = Reranker(retriever, known, query, model=Likes()).search(5)
    assert [one.passage.text for one in plain] == [b"walrus", b"brass"]
    assert [one.passage.text for one in asked] == [b"brass", b"walrus"]
    assert sorted(one.score for one in asked) == sorted(one.score for one in plain)
