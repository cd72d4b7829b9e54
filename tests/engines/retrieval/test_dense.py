"""Stored vectors follow their passages to the last byte, and both dense retrievers rank by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest

from datastores.errors import StoreError
from datastores.passages.chunks import Chunk
from datastores.passages.embeddings import (
    STORED,
    Embedder,
    Encoding,
    StoredVectors,
    UnrelatedTexts,
    Vectors,
    signs_of,
)
from datastores.passages.store import PassageStore
from engines.retrieval import nearness
from engines.retrieval.dense import MISSING, DenseRetriever
from engines.retrieval.late_interaction import UNEVENNESS, AskedTokens, similarity
from engines.retrieval.nearness import Nearness

WIDTH = 16
UNRELATED, OF_TOKENS = UnrelatedTexts(0.0, 0.1), UnrelatedTexts(0.1, 0.05)
MODEL = Embedder("a fingerprint", "/models/embedder.gguf", WIDTH, UNRELATED, OF_TOKENS)


def encode(texts: Sequence[str]) -> list[Encoding]:
    """A unit vector drawn from the first word, near to others of the same first word, and a state
    for each word."""
    return [Encoding(_vector(text), np.array([*map(_vector, text.split())])) for text in texts]


def _vector(text: str) -> Vectors:
    word, _, rest = text.partition(" ")
    drawn = [np.random.default_rng(list(part.encode()) or [0]) for part in (word, rest)]
    vector = drawn[0].standard_normal(WIDTH) + 0.3 * drawn[1].standard_normal(WIDTH)
    unit: Vectors = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def vectors_of(texts: Sequence[str]) -> Vectors:
    return np.array([one.vector for one in encode(texts)])


def key(number: int) -> bytes:
    return number.to_bytes(2)


def text(number: int) -> str:
    return f"word{number % 7} page {number}"


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.db")) as store:
        for number in range(60):
            store.add(key(number), [(0, Chunk("", 1, 1, text(number)))])
        yield store


@pytest.fixture
def stored(passages: PassageStore) -> StoredVectors:
    vectors = StoredVectors(passages)
    vectors.bind(MODEL)
    return vectors


def embed(stored: StoredVectors) -> int:
    """Embed what is missing; how many those are."""
    found = stored.unembedded(b"", 1_000)
    stored.add(MODEL, [one.digest for one in found], encode([one.text for one in found]))
    return len(found)


def missing(stored: StoredVectors, limit: int) -> list[bytes]:
    return [one.digest for one in stored.unembedded(b"", limit)]


@pytest.fixture
def retriever(passages: PassageStore, stored: StoredVectors) -> Iterator[DenseRetriever]:
    embed(stored)
    own = PassageStore(passages.store.new_connection())
    with closing(DenseRetriever(own, MODEL, encode)) as opened:
        opened.update()
        yield opened


def test_only_what_changed_is_embedded(passages: PassageStore, stored: StoredVectors) -> None:
    assert embed(stored) == 60
    assert embed(stored) == 0
    passages.add(b"changed", [(0, Chunk("", 1, 1, text(3))), (0, Chunk("", 2, 2, "new"))])
    passages.remove([key(3)])
    assert [one.text for one in stored.unembedded(b"", 9)] == ["new"]
    assert stored.counts() == (60, 61)


def test_a_vector_leaves_with_the_last_passage_it_stands_for(
    passages: PassageStore, stored: StoredVectors, tmp_path: Path
) -> None:
    passages.add(b"copy", [(0, Chunk("", 9, 9, text(5)))])
    embed(stored)
    (encoding,) = encode([text(5)])
    raw, signs = encoding.vector.astype(STORED).tobytes(), signs_of(encoding.states).tobytes()

    def files() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.iterdir())

    passages.remove([key(5)])
    assert stored.counts() == (60, 60)
    assert raw in files()
    assert signs in files()
    passages.remove([b"copy"])
    assert stored.counts() == (59, 59)
    assert raw not in files()
    assert signs not in files()


def test_vectors_of_two_models_are_never_mixed(
    passages: PassageStore, stored: StoredVectors
) -> None:
    embed(stored)
    stored.bind(MODEL)
    stored.bind(Embedder(MODEL.fingerprint, "/moved.gguf", WIDTH, UNRELATED, OF_TOKENS))
    assert stored.counts() == (60, 60), "the same weights under another name"
    other = Embedder("another", "/other.gguf", WIDTH, UNRELATED, OF_TOKENS)
    stored.bind(other)
    assert stored.counts() == (0, 60)
    stored.add(MODEL, missing(stored, 2), encode(["a", "b"]))
    assert stored.counts() == (0, 60), "embedded while the model was changed"
    assert stored.embedder == other
    stored.drop()
    assert stored.embedder is None


def test_a_passage_that_was_removed_meanwhile_gets_no_vector(
    passages: PassageStore, stored: StoredVectors
) -> None:
    gone = missing(stored, 1)
    passages.remove(passages.keys())
    stored.add(MODEL, gone, encode(["a"]))
    assert stored.counts() == (0, 0)


def test_vectors_of_another_width_are_refused(stored: StoredVectors) -> None:
    wide = np.ones((1, WIDTH + 1), np.float32)
    stored.add(MODEL, missing(stored, 1), [Encoding(wide[0], wide)])
    ids = [one["id"] for one in stored._store.rows("SELECT id FROM chunks")]
    for load in (lambda: stored.load(MODEL), lambda: stored.load_tokens(MODEL, ids)):
        with pytest.raises(StoreError, match="a vector is not of 16 dimensions"):
            load()


@pytest.mark.parametrize("approximate", [False, True])
def test_both_retrievers_rank_by_inner_product(
    passages: PassageStore, retriever: DenseRetriever, approximate: bool
) -> None:
    own = PassageStore(passages.store.new_connection())
    with closing(DenseRetriever(own, MODEL, encode, approximate=approximate)) as searched:
        searched.update()
        queries = [text(4), "word3 unheard of"]
        for query, ranked in zip(queries, searched.search(queries, 5), strict=True):
            vectors = vectors_of([text(number) for number in range(60)]).astype(STORED)
            scores = vectors.astype(np.float64) @ vectors_of([query])[0]
            best = sorted(scores, reverse=True)[:5]
            assert [one.score for one in ranked] == pytest.approx(best, abs=1e-6)
            ids = [one.passage.id for one in ranked]
            assert searched.score([query], ids) == [[one.score for one in ranked]]
        assert searched.search([text(4)], 1)[0][0].passage.chunk.content == text(4)
        assert searched.score(["word3"], [-5]) == [[MISSING]]


def test_it_follows_the_store(
    passages: PassageStore, stored: StoredVectors, retriever: DenseRetriever
) -> None:
    passages.remove([key(4)])
    passages.add(b"new", [(0, Chunk("", 1, 1, "zebra crossing"))])
    embed(stored)
    assert retriever.search(["word4 page 4"], 1)[0] == [], "removed while it was being used"
    retriever.update()
    assert len(retriever) == 60
    assert retriever.search(["zebra crossing"], 1)[0][0].passage.text == b"new"
    (query,) = vectors_of(["zebra crossing"])
    texts = {b"new", key(10)}
    assert len(retriever.nearest_of(query, texts, 9)) == 2
    passages.remove([b"new"])
    retriever.update()
    assert [one.text for one in retriever.nearest_of(query, texts, 9)] == [key(10)]


def test_vectors_without_a_scale_wait_for_it_and_are_kept(
    passages: PassageStore, stored: StoredVectors
) -> None:
    embed(stored)
    with passages.store.writing() as db:
        db.conn.execute("UPDATE embedder SET deviation = 0")
    assert [stored.embedder] == [None], "as an earlier version left them"
    stored.bind(MODEL)
    assert stored.embedder == MODEL
    assert stored.counts() == (60, 60)


def test_what_is_loaded_in_batches_is_what_is_stored(
    stored: StoredVectors, retriever: DenseRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, vectors = stored.load(MODEL)
    assert len(ids) == 60
    monkeypatch.setattr("datastores.passages.embeddings.LOADED_AT_ONCE", 7)
    again, those = stored.load(MODEL)
    assert (again.tolist(), those.tolist()) == (ids.tolist(), vectors.tolist())
    assert len(stored.load(replace(MODEL, fingerprint="another"))[0]) == 0


def test_the_nearest_of_some_texts_are_those_among_all(
    retriever: DenseRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.retrieval.vectors.SCORED_AT_ONCE", 4)
    texts = {key(number) for number in range(0, 60, 3)} | {b"not here"}
    ranked = [one.passage for one in retriever.search(["word1 page 1"], -1)[0]]
    among = [one for one in ranked if one.text in texts]
    (query,) = vectors_of(["word1 page 1"])
    assert retriever.nearest_of(query, texts, 5) == among[:5]
    assert retriever.nearest_of(query, texts, 99) == among
    assert retriever.nearest_of(query, {b"not here"}, 5) == []


def test_nearness_is_counted_in_deviations_beyond_chance(
    passages: PassageStore, stored: StoredVectors, retriever: DenseRetriever
) -> None:
    (query,), everything = retriever.encode(["word1 page 1"]), 60
    nearest, second = retriever.search_vectors(query.vector[None], 2)[0]
    asked = [nearest.passage.id, second.passage.id]
    found = Nearness(retriever, query, everything)
    assert [one.id for one in found.nearest(2)] == asked
    beyond = found.beyond_chance([*asked, -5])
    assert list(beyond) == asked, "what has no vector is not known"
    assert beyond[asked[0]] - beyond[asked[1]] == pytest.approx(
        (nearest.score - second.score) / 0.1
    )
    assert beyond[asked[0]] == pytest.approx(
        nearest.score / 0.1 - nearness.CHANCE - nearness.GROWTH * log(everything / nearness.FEW)
    )
    fewer = Nearness(retriever, query, 1, {second.passage.text})
    assert [one.id for one in fewer.nearest(9)] == asked[1:]
    assert fewer.beyond_chance(asked)[asked[0]] == pytest.approx(nearest.score / 0.1 - 1)
    unlike = replace(retriever.embedder, unrelated=UnrelatedTexts(0.7, 0.02))
    retriever.embedder = unlike
    scaled = Nearness(retriever, query, 1).beyond_chance(asked)
    assert scaled[asked[0]] == pytest.approx((nearest.score - 0.7) / 0.02 - 1)


def test_late_interaction_takes_the_best_match_of_each_token_and_their_evenness(
    passages: PassageStore, stored: StoredVectors, retriever: DenseRetriever
) -> None:
    (query,) = encode(["word3 page word5 lighthouse"])
    ids = passages.ids_of(key(number) for number in range(60))
    found = retriever.match_tokens(AskedTokens(query.states), [*ids, -5])
    assert sorted(found) == ids
    measured = Nearness(retriever, query, 1)
    for one in passages.passages(ids):
        signs = np.where(encode([one.chunk.content])[0].states > 0, 1, -1) / WIDTH**0.5
        exact = (query.states @ signs.T).max(axis=1)
        assert found[one.id] == pytest.approx(exact, abs=4e-3)
        (alone,) = retriever.match_tokens(AskedTokens(query.states), [one.id]).values()
        assert np.array_equal(alone, found[one.id])
        even = exact.mean() - UNEVENNESS * exact.std()
        beyond = float(measured.tokens_beyond_chance(found[one.id]))
        assert beyond == pytest.approx((even - 0.1) / 0.05 - 1, abs=0.1)


def test_what_has_no_tokens_is_similar_to_nothing() -> None:
    states = encode(["word3"])[0].states
    nothing = AskedTokens(states).matches(signs_of(states)[:0])
    assert nothing.tolist() == [0.0] * len(states)
    assert similarity(AskedTokens(states[:0]).matches(signs_of(states))) == 0.0
