"""The index in memory ranks as FTS5 does, in batches and alone, and follows the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.errors import StoreError
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from datastores.passages.word_counts import PassageWords, StoredWords
from engines.retrieval import inverted_index, word_index
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.inverted_index import MAX_SEGMENTS
from engines.retrieval.protocol import ScoredPassage
from engines.retrieval.word_index import WordIndex

WORDS = ("archive", "copies", "snapshot", "volume", "encrypting", "keys", "mounted", "disks", "net")


def page(number: int) -> Chunk:
    words = [WORDS[(number * place + place) % len(WORDS)] for place in range(3 + number % 11)]
    return Chunk(f"{WORDS[number % 4]} page", 1, 1, " ".join(words))


def key(number: int) -> bytes:
    return number.to_bytes(2)


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.sqlite")) as store:
        for number in range(600):
            store.add(key(number), [(0, page(number))])
        yield store


@pytest.fixture
def index(passages: PassageStore) -> Iterator[WordIndex]:
    with closing(WordIndex(PassageStore(passages.store.new_connection()))) as opened:
        opened.update()
        yield opened


def same(found: list[ScoredPassage], expected: list[ScoredPassage]) -> bool:
    scores = [one.score for one in found]
    return scores == pytest.approx([one.score for one in expected], abs=1e-4)


@pytest.mark.parametrize(
    "query",
    ["archives", "encrypted key", "mount the disk and copy volumes", "snapshot snapshots", "page"],
)
def test_scores_are_those_of_fts5(passages: PassageStore, index: WordIndex, query: str) -> None:
    (expected,) = Bm25Retriever(passages).search([query], -1)
    (found,) = index.search([query], -1)
    assert expected
    assert {one.passage.id for one in found} == {one.passage.id for one in expected}
    assert same(found, expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "zebra", "page"]), max_size=6), min_size=1),
    st.integers(1, 30),
)
def test_batch_single_subset_and_limit_agree(
    index: WordIndex, words: list[list[str]], limit: int
) -> None:
    queries = [" ".join(query) for query in words]
    for query, ranked in zip(queries, index.search(queries, limit), strict=True):
        (everything,) = index.search([query], -1)
        assert everything[:limit] == ranked
        order = [(-one.score, one.passage.id) for one in everything]
        assert order == sorted(order)
        ids = [one.passage.id for one in reversed(ranked)]
        assert index.score([query], ids) == [[one.score for one in reversed(ranked)]]


def test_a_passage_that_shares_no_word_or_is_gone_scores_nothing(index: WordIndex) -> None:
    ((found,),) = index.search(["archive"], 1)
    assert index.score(["zebra", ""], [found.passage.id]) == [[0.0], [0.0]]
    assert index.score(["archive"], [-5]) == [[0.0]]
    assert index.search(["zebra", "?!"], 5) == [[], []]


def test_it_follows_the_store_without_a_rebuild_and_equals_one(
    passages: PassageStore, index: WordIndex
) -> None:
    assert not index.update()
    for number in range(600, 600 + 2 * MAX_SEGMENTS):
        passages.add(key(number), [(0, page(number))])
        passages.add(key(number + 1000), [(0, Chunk("", 1, 1, f"zebra crossing {number}"))])
        passages.remove([key(number - 600)])
        assert index.update()
    ((found,),) = index.search(["a zebra at crossing 605"], 1)
    assert found.passage.chunk.content == "zebra crossing 605"
    with closing(WordIndex(PassageStore(passages.store.new_connection()))) as fresh:
        fresh.update()
        queries = ["archive keys", "page of zebras", "mounted", "crossing"]
        assert index.search(queries, -1) == fresh.search(queries, -1)
    assert len(index) == len(passages)


def test_words_are_read_in_parts_that_fit_into_memory(
    passages: PassageStore, index: WordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (inverted_index, word_index):
        monkeypatch.setattr(module, "SEGMENT_PASSAGES", 50)
    read, load = [], StoredWords.load

    def counted(stored: StoredWords, ids: Sequence[int]) -> PassageWords:
        read.append(len(ids))
        return load(stored, ids)

    monkeypatch.setattr(StoredWords, "load", counted)
    with closing(WordIndex(PassageStore(passages.store.new_connection()))) as parted:
        parted.update()
        assert read == [50] * 12
        queries = ["archive keys", "page of zebras", "mounted disks"]
        assert parted.search(queries, -1) == index.search(queries, -1)
        passages.add(key(600), [(0, page(600))])
        parted.update()
        assert read[12:] == [1], "many segments alone are no reason to read all again"


def test_a_store_that_cannot_be_read_any_more_leaves_what_was_read(
    passages: PassageStore, index: WordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: StoredWords, __: Sequence[int]) -> PassageWords:
        raise StoreError("the disk is gone")

    passages.remove([key(number) for number in range(300)])
    with monkeypatch.context() as patched:
        patched.setattr(StoredWords, "load", failing)
        with pytest.raises(StoreError):
            index.update()
    index.search(["archive"], 3)
    assert index.update()
    assert len(index) == len(passages)


def test_some_texts_are_searched_with_the_statistics_of_all(index: WordIndex) -> None:
    (everything,) = index.search(["archive"], -1)
    texts = frozenset(one.passage.text for one in everything[5:9])
    (found,) = index.within(texts).search(["archive"], 3)
    assert found == everything[5:8]
    ids = [one.passage.id for one in found]
    assert index.within(texts).score(["archive"], ids) == [[one.score for one in found]]


def test_an_empty_store_finds_nothing(tmp_path: Path) -> None:
    with closing(WordIndex(PassageStore.open(tmp_path / "empty.sqlite"))) as index:
        assert not index.update()
        assert index.search(["archive"], 3) == [[]]
        assert index.score(["archive"], [1]) == [[0.0]]
