"""The dense index's parts: what is stored is what was given, whatever order it came in."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.dense.index import FaissIndex, FewIndex
from datastores.dense.memory import GAP, TokenArena
from datastores.dense.projection import Moments, fit
from datastores.dense.rows import KEYS, TOKENS, Encoded, Written, expand, key_blocks
from datastores.dense.store import DenseStore
from datastores.errors import StoreError
from tests.datastores.dense.test_projection import WIDTH, fitted, moments_of, states


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_both_indexes_find_what_brute_force_finds(seed: int, lists: list[int], k: int) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.integers(1, 256, (len(lists), 16)).astype(np.uint8)
    query = generator.integers(1, 256, 16).astype(np.float32)
    partitions, places = np.array(lists), np.arange(len(lists)) * 10
    few, many = FewIndex(16, 127.0), FaissIndex(4, 16, 127.0)
    many.reserve(np.bincount(partitions, minlength=4))
    for index in (few, many):
        for part in np.array_split(np.arange(len(lists)), 3):
            index.add(codes[part], partitions[part], places[part])
    for index in (few, many, few.moved(4)):
        assert len(index) == len(lists)
        for partition in range(4):
            rows = np.flatnonzero(partitions == partition)
            far = ((codes[rows] - query.astype(np.float64)) ** 2).sum(1)
            found = index.search(query, partition, k)
            assert len(found.positions) == min(k, len(rows))
            expected = np.sort(far)[:k] / (2 * 127.0**2)
            np.testing.assert_allclose(
                1 - np.array(found.similarities), expected, rtol=1e-4, atol=1e-5
            )
            mine = far[np.searchsorted(rows * 10, found.positions)] if len(rows) else far
            assert mine.tolist() == sorted(far.tolist())[:k]


def test_fractions_of_a_query_and_what_is_beyond_a_byte_do_not_lead_astray() -> None:
    codes = np.array([[1, 255], [255, 1], [130, 128]], np.uint8)
    few, many = FewIndex(2, 127.0), FaissIndex(1, 2, 127.0)
    for index in (few, many):
        index.add(codes, np.zeros(3, np.int64), np.arange(3))
        for query, nearest in (([260.0, -4.0], 1), ([-3.0, 300.0], 0), ([129.6, 128.4], 2)):
            found = index.search(np.array(query, np.float32), 0, 1)
            assert found.positions.tolist() == [nearest]


@given(st.lists(st.integers(0, 7 * KEYS), unique=True, min_size=1).map(sorted))
def test_blocks_hold_every_position_once(positions: list[int]) -> None:
    where = np.array(positions, np.int64)
    codes = (where[:, None] + np.arange(3)).astype(np.uint8)
    blocks = list(key_blocks(where, codes))
    starts = np.array([block.block * KEYS for block in blocks])
    _, found = expand(starts, np.array([block.present for block in blocks]))
    assert found.tolist() == positions
    np.testing.assert_array_equal(np.concatenate([block.codes for block in blocks]), codes)


@given(st.data())
def test_a_stream_gives_back_every_document(data: st.DataObject) -> None:
    stream, said = TokenArena(), dict[int, list[int]]()
    for _ in range(data.draw(st.integers(1, 12))):
        document = data.draw(st.integers(1, 3))
        words = data.draw(st.lists(st.integers(0, 99), max_size=400))
        stream.extend(document, len(said.setdefault(document, [])), words)
        said[document] += words
    for document, words in said.items():
        places = stream.places(document, np.arange(len(words) + 1))
        assert places[-1] == -1
        assert stream.tokens[places[:-1]].tolist() == words
    gone = data.draw(st.sampled_from(sorted(said)))
    stream.forget(gone)
    kept = sorted(t for d, words in said.items() if d != gone for t in words)
    assert sorted(stream.tokens[stream.tokens != GAP].tolist()) == kept


@pytest.fixture
def store(tmp_path: Path) -> DenseStore:
    return DenseStore.open(tmp_path / "dense.db", "model", WIDTH)


def snapshot(store: DenseStore) -> list[tuple[object, ...]]:
    """Every key of every generation, sorted."""
    return sorted(
        (generation.id, int(document), int(position), code.tobytes())
        for generation in store.generations.all()
        for batch in store.keys(generation)
        for document, position, code in zip(*batch, strict=True)
    )


@settings(max_examples=20)
@given(st.data())
def test_what_is_written_in_any_pieces_is_read_whole(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = DenseStore.open(Path(folder) / "dense.db", "model", WIDTH)
        store.generations.begin(fitted(), 400, 0.9)
        generation = store.generations.all()[0]
        length = data.draw(st.integers(2, 3 * TOKENS))
        words = [n * 7 % 1000 for n in range(length)]
        codes = np.random.default_rng(length).integers(1, 256, (length, 8)).astype(np.uint8)
        document, written = store.create_document("chat"), 0
        while written < length:
            stop = data.draw(st.integers(written + 1, length))
            places = np.arange(max(1, written), stop)
            keys = Encoded(document, generation.id, places, codes[places])
            again = data.draw(st.integers(1, 2))
            for _ in range(again):
                store.write([Written(document, written, words[written:stop])], [keys])
            written = stop
        assert list(store.tokens(document)) == words
        assert [(d, t.tolist()) for d, t in store.streams()] == [(document, words)]
        expected = [(generation.id, document, p, codes[p].tobytes()) for p in range(1, length)]
        assert snapshot(store) == expected
        assert store.counts(generation) == (length - 1, length - 1)
        assert store.unfinished(generation) == []
        store.close()


def test_missing_positions_are_named_until_they_are_filled(store: DenseStore) -> None:
    store.generations.begin(fitted(), 400, 0.9)
    generation = store.generations.all()[0]
    document = store.create_document("import", first=3)
    store.write([Written(document, 0, range(40))])
    assert store.missing(document, generation).tolist() == list(range(3, 40))
    holes = np.array([5, 6, 22])
    rest = np.setdiff1d(np.arange(3, 40), holes)
    codes = fitted().encode(states(len(rest)))
    store.write([], [Encoded(document, generation.id, rest, codes)])
    assert store.missing(document, generation).tolist() == holes.tolist()
    assert store.unfinished(generation) == [document]
    store.write([], [Encoded(document, generation.id, holes, codes[:3])])
    assert store.unfinished(generation) == []


def test_another_models_index_is_refused(store: DenseStore) -> None:
    store.close()
    for fingerprint, width in (("other", WIDTH), ("model", WIDTH + 1)):
        with pytest.raises(StoreError, match="another model"):
            DenseStore.open(store.store.path, fingerprint, width)


def test_a_promoted_generation_replaces_the_old_and_its_keys(store: DenseStore) -> None:
    document = store.create_document("chat")
    for seed in (1, 2):
        store.generations.begin(fitted(), 400, 0.9)
        newest = store.generations.all()[-1]
        codes = newest.projection.encode(states(30, seed))
        store.write(
            [Written(document, 0, range(31))],
            [Encoded(document, newest.id, np.arange(1, 31), codes)],
        )
    old, new = store.generations.all()
    assert (old.serving, new.serving) == (True, False)
    store.generations.promote()
    assert [(g.id, g.serving) for g in store.generations.all()] == [(new.id, True)]
    assert {row[0] for row in snapshot(store)} == {new.id}


def test_keys_of_a_damaged_projection_are_dropped_and_the_tokens_stay(store: DenseStore) -> None:
    store.generations.begin(fitted(), 400, 0.9)
    generation = store.generations.all()[0]
    document = store.create_document("chat")
    keys = Encoded(document, generation.id, np.arange(1, 9), fitted().encode(states(8)))
    store.write([Written(document, 0, range(9))], [keys])
    with store.store.writing() as db:
        db.conn.execute("UPDATE generations SET projection = zeroblob(length(projection))")
    store.close()
    again = DenseStore.open(store.store.path, "model", WIDTH)
    assert again.generations.all() == []
    assert list(again.tokens(document)) == list(range(9))
    assert again.unfinished(None) == [document]
    again.close()


def test_a_projection_of_another_models_states_is_dropped_with_its_keys(store: DenseStore) -> None:
    store.generations.begin(fit(moments_of(states(300, width=WIDTH + 1)), 8), 300, 0.9)
    generation = store.generations.all()[0]
    document = store.create_document("chat")
    keys = Encoded(document, generation.id, np.arange(1, 9), fitted().encode(states(8)))
    store.write([Written(document, 0, range(9))], [keys])
    store.close()
    again = DenseStore.open(store.store.path, "model", WIDTH)
    assert again.generations.all() == []
    assert again.store.rows("SELECT count(*) AS n FROM keys")[0]["n"] == 0
    assert again.unfinished(None) == [document]
    again.close()


def test_what_is_forgotten_leaves_no_byte(store: DenseStore) -> None:
    secret = [4_000_000_000 + n for n in range(40)]
    kept, gone = store.create_document("kept"), store.create_document("gone")
    store.write([Written(gone, 0, secret), Written(kept, 0, range(100))])
    assert store.forget("gone") == [gone]
    assert store.forget("gone") == []
    assert store.tokens(gone) == ()
    assert list(store.tokens(kept)) == list(range(100))
    needle = np.array(secret[:2], "<u4").tobytes()
    for path in store.store.path.parent.iterdir():
        assert needle not in path.read_bytes()


def test_a_token_costs_less_than_96_bytes_in_short_answers_too(tmp_path: Path) -> None:
    store = DenseStore.open(tmp_path / "dense.db", "model", 256)
    moments = Moments(256)
    moments.add(states(400, width=256))
    store.generations.begin(fit(moments), 400, 0.9)
    generation = store.generations.all()[0]
    encoded = generation.projection.encode(states(92, width=256))
    for _ in range(100):
        document = store.create_document("chat", first=20)
        for start in range(20, 92, 24):
            places = np.arange(start, start + 24)
            begin = 0 if start == 20 else start
            store.write(
                [Written(document, begin, range(begin, start + 24))],
                [Encoded(document, generation.id, places, encoded[places])],
            )
    keys = store.counts(generation)[1]
    store.close()
    assert keys == 100 * 72
    per_model = len(generation.projection.pack())
    assert (store.store.path.stat().st_size - per_model) / keys < 96
