"""BM25 in memory ranks as FTS5 does, in batches and alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bench.inverted_index import InvertedIndex, count_words
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from engines.retrieval.bm25 import Bm25Retriever

WORDS = ("archive", "copies", "snapshot", "volume", "encrypting", "keys", "mounted", "disks", "net")


def page(number: int) -> Chunk:
    words = [WORDS[(number * place + place) % len(WORDS)] for place in range(3 + number % 11)]
    return Chunk(f"{WORDS[number % 4]} page", 1, number + 1, " ".join(words))


PAGES = [page(number) for number in range(600)]


@pytest.fixture(scope="module")
def index() -> InvertedIndex:
    segment, lengths = count_words([(one.heading, one.content) for one in PAGES])
    return InvertedIndex([segment], lengths)


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bm25Retriever]:
    path: Path = tmp_path_factory.mktemp("store") / "passages.sqlite"
    with closing(PassageStore.open(path)) as store:
        store.add(b"pages", enumerate(PAGES))
        yield Bm25Retriever(store)


@pytest.mark.parametrize(
    "query",
    ["archives", "encrypted key", "mount the disk and copy volumes", "snapshot snapshots", "page"],
)
def test_scores_are_those_of_fts5(
    retriever: Bm25Retriever, index: InvertedIndex, query: str
) -> None:
    (expected,) = retriever.search([query], -1)
    (found,) = index.search([query], -1)
    assert expected
    by_row = {one.passage.part: one.score for one in expected}
    assert dict(found) == pytest.approx(by_row, abs=1e-4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "zebra", "page"]), max_size=6), min_size=1),
    st.integers(1, 30),
)
def test_batch_single_subset_and_limit_agree(
    index: InvertedIndex, words: list[list[str]], limit: int
) -> None:
    queries = [" ".join(query) for query in words]
    for query, ranked in zip(queries, index.search(queries, limit), strict=True):
        (everything,) = index.search([query], -1)
        assert everything[:limit] == ranked
        order = [(-score, row) for row, score in everything]
        assert order == sorted(order)
        rows = [row for row, _ in reversed(ranked)]
        assert index.score([query], rows) == [[score for _, score in reversed(ranked)]]


def test_a_passage_that_shares_no_word_scores_nothing(index: InvertedIndex) -> None:
    (((row, _),),) = index.search(["archive"], 1)
    assert index.score(["zebra", ""], [row]) == [[0.0], [0.0]]
    assert index.search(["zebra", "?!"], 5) == [[], []]


def test_parts_are_one_index(index: InvertedIndex) -> None:
    segment, lengths = count_words([(one.heading, one.content) for one in PAGES[:200]])
    rest, more = count_words([(one.heading, one.content) for one in PAGES[200:]])
    rest = type(rest)(rest.keys, rest.starts, rest.rows + np.int32(200), rest.counts)
    parts = InvertedIndex([segment, rest], np.concatenate([lengths, more]))
    queries = ["archive keys", "page of zebras", "mounted disks"]
    assert parts.search(queries, -1) == index.search(queries, -1)
