"""The dense index's parts: what is stored is what was given, whatever order it came in."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.dense.memory import GAP, InvertedLists, TokenArena
from datastores.dense.projection import Projection, fit
from datastores.dense.store import (
    KEY_BLOCK,
    TOKEN_BLOCK,
    DenseStore,
    TextKeys,
    TextTokens,
)
from datastores.errors import StoreError
from tests.datastores.dense.test_projection import WIDTH, fitted, states


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_the_lists_find_what_brute_force_finds(seed: int, numbers: list[int], k: int) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.integers(1, 256, (len(numbers), 16)).astype(np.uint8)
    query = generator.integers(1, 256, 16).astype(np.float32)
    owners, offsets = np.array(numbers), np.arange(len(numbers)) * 10
    lists = InvertedLists(4, 16, 127.0)
    lists.reserve(np.bincount(owners, minlength=4))
    for part in np.array_split(np.arange(len(numbers)), 3):
        lists.add(codes[part], owners[part], offsets[part])
    assert len(lists) == len(numbers)
    for number in range(4):
        rows = np.flatnonzero(owners == number)
        far = ((codes[rows] - query.astype(np.float64)) ** 2).sum(1)
        found = lists.search(query, number, k)
        assert len(found.offsets) == min(k, len(rows))
        expected = np.sort(far)[:k] / (2 * 127.0**2)
        np.testing.assert_allclose(1 - np.array(found.similarities), expected, rtol=1e-4, atol=1e-5)
        mine = far[np.searchsorted(rows * 10, found.offsets)] if len(rows) else far
        assert mine.tolist() == sorted(far.tolist())[:k]


def test_fractions_of_a_query_and_what_is_beyond_a_byte_do_not_lead_astray() -> None:
    codes = np.array([[1, 255], [255, 1], [130, 128]], np.uint8)
    lists = InvertedLists(1, 2, 127.0)
    lists.add(codes, np.zeros(3, np.int64), np.arange(3))
    for query, nearest in (([260.0, -4.0], 1), ([-3.0, 300.0], 0), ([129.6, 128.4], 2)):
        found = lists.search(np.array(query, np.float32), 0, 1)
        assert found.offsets == [nearest]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7 * KEY_BLOCK), unique=True, min_size=1).map(sorted))
def test_blocks_hold_every_position_once(positions: list[int]) -> None:
    where = np.array(positions, np.int64)
    codes = (where[:, None] + np.arange(8)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        store = DenseStore.open(Path(folder) / "dense.db", "model", WIDTH)
        keep(store, fitted())
        text = store.create_text("chat")
        tokens = TextTokens(text, 0, range(positions[-1] + 1))
        store.write([tokens], [TextKeys(text, where, codes)])
        expected = [(text, p, c.tobytes()) for p, c in zip(positions, codes, strict=True)]
        assert snapshot(store) == expected
        missing = np.setdiff1d(np.arange(1, positions[-1] + 1), where)
        assert store.missing_keys(text).tolist() == missing.tolist()
        assert store.counts() == (positions[-1], len(positions))
        store.close()


@given(st.data())
def test_the_arena_gives_back_every_text(data: st.DataObject) -> None:
    arena, said = TokenArena(), dict[int, list[int]]()
    for _ in range(data.draw(st.integers(1, 12))):
        text = data.draw(st.integers(1, 3))
        words = data.draw(st.lists(st.integers(0, 99), max_size=400))
        arena.extend(text, len(said.setdefault(text, [])), words)
        said[text] += words
    for text, words in said.items():
        offsets = arena.offsets(text, np.arange(len(words) + 1))
        assert offsets[-1] == -1
        assert arena.tokens[offsets[:-1]].tolist() == words
    whole = TokenArena()
    for text, words in said.items():
        whole.extend(text, 0, words)
        positions = np.arange(-1, len(words) + 1)
        found = whole.first_offsets(np.full(len(positions), text), positions)
        assert found.tolist() == whole.offsets(text, positions).tolist()
    gone = data.draw(st.sampled_from(sorted(said)))
    arena.forget(gone)
    kept = sorted(t for d, words in said.items() if d != gone for t in words)
    assert sorted(arena.tokens[arena.tokens != GAP].tolist()) == kept


@pytest.fixture
def store(tmp_path: Path) -> DenseStore:
    return DenseStore.open(tmp_path / "dense.db", "model", WIDTH)


def keep(store: DenseStore, projection: Projection) -> None:
    """Make it the projection of the store."""
    store.keep_projection(projection, 400)
    assert store.projection() is not None


def snapshot(store: DenseStore) -> list[tuple[object, ...]]:
    """Every key, sorted."""
    projection = store.projection()
    assert projection is not None
    return sorted(
        (int(text), int(position), code.tobytes())
        for batch in store.keys(projection.dimensions)
        for text, position, code in zip(*batch, strict=True)
    )


@settings(max_examples=20)
@given(st.data())
def test_what_is_written_in_any_pieces_is_read_whole(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = DenseStore.open(Path(folder) / "dense.db", "model", WIDTH)
        keep(store, fitted())
        length = data.draw(st.integers(2, 3 * TOKEN_BLOCK))
        words = [n * 7 % 1000 for n in range(length)]
        codes = np.random.default_rng(length).integers(1, 256, (length, 8)).astype(np.uint8)
        text, written = store.create_text("chat"), 0
        while written < length:
            stop = data.draw(st.integers(written + 1, length))
            places = np.arange(max(1, written), stop)
            keys = TextKeys(text, places, codes[places])
            again = data.draw(st.integers(1, 2))
            for _ in range(again):
                store.write([TextTokens(text, written, words[written:stop])], [keys])
            written = stop
        assert list(store.tokens(text)) == words
        assert [(d, t.tolist()) for d, t in store.token_streams()] == [(text, words)]
        expected = [(text, p, codes[p].tobytes()) for p in range(1, length)]
        assert snapshot(store) == expected
        assert store.counts() == (length - 1, length - 1)
        assert store.incomplete() == []
        store.close()


def test_missing_positions_are_named_until_they_are_filled(store: DenseStore) -> None:
    keep(store, fitted())
    text = store.create_text("import", first=3)
    store.write([TextTokens(text, 0, range(40))])
    assert store.missing_keys(text).tolist() == list(range(3, 40))
    holes = np.array([5, 6, 22])
    rest = np.setdiff1d(np.arange(3, 40), holes)
    codes = fitted().encode(states(len(rest)))
    store.write([], [TextKeys(text, rest, codes)])
    assert store.missing_keys(text).tolist() == holes.tolist()
    assert store.incomplete() == [text]
    store.write([], [TextKeys(text, holes, codes[:3])])
    assert store.incomplete() == []


def test_another_models_index_is_refused(store: DenseStore) -> None:
    store.close()
    for fingerprint, width in (("other", WIDTH), ("model", WIDTH + 1)):
        with pytest.raises(StoreError, match="another model"):
            DenseStore.open(store.store.path, fingerprint, width)


def test_the_first_projection_stays(store: DenseStore) -> None:
    keep(store, fitted())
    store.keep_projection(fit(states(300, seed=1), 8), 300)
    projection = store.projection()
    assert projection is not None
    np.testing.assert_array_equal(projection.weights, fitted().weights)


def test_keys_of_a_projection_that_was_dropped_meanwhile_are_left_out(store: DenseStore) -> None:
    keep(store, fitted())
    text = store.create_text("chat")
    with store.store.writing() as db:
        db.conn.execute("DELETE FROM projections")
    codes = fitted().encode(states(8))
    store.write([TextTokens(text, 0, range(9))], [TextKeys(text, np.arange(1, 9), codes)])
    assert list(store.tokens(text)) == list(range(9))
    assert store.counts() == (8, 0)


def test_keys_of_a_damaged_projection_are_dropped_and_the_tokens_stay(store: DenseStore) -> None:
    keep(store, fitted())
    text = store.create_text("chat")
    keys = TextKeys(text, np.arange(1, 9), fitted().encode(states(8)))
    store.write([TextTokens(text, 0, range(9))], [keys])
    with store.store.writing() as db:
        db.conn.execute("UPDATE projections SET packed = zeroblob(length(packed))")
    store.close()
    again = DenseStore.open(store.store.path, "model", WIDTH)
    assert again.projection() is None
    assert list(again.tokens(text)) == list(range(9))
    assert again.incomplete() == [text]
    again.close()


def test_a_projection_of_another_models_states_is_dropped_with_its_keys(store: DenseStore) -> None:
    store.keep_projection(fit(states(300, width=WIDTH + 1), 8), 300)
    with pytest.raises(StoreError, match="the next start fits it again"):
        store.projection()
    text = store.create_text("chat")
    keys = TextKeys(text, np.arange(1, 9), fitted().encode(states(8)))
    store.write([TextTokens(text, 0, range(9))], [keys])
    store.close()
    again = DenseStore.open(store.store.path, "model", WIDTH)
    assert again.projection() is None
    assert again.store.rows("SELECT count(*) AS n FROM keys")[0]["n"] == 0
    assert again.incomplete() == [text]
    again.close()


def test_what_is_forgotten_leaves_no_byte(store: DenseStore) -> None:
    secret = [4_000_000_000 + n for n in range(40)]
    kept, gone = store.create_text("kept"), store.create_text("gone")
    store.write([TextTokens(gone, 0, secret), TextTokens(kept, 0, range(100))])
    assert store.forget("gone") == [gone]
    assert store.forget("gone") == []
    assert store.tokens(gone) == ()
    assert list(store.tokens(kept)) == list(range(100))
    needle = np.array(secret[:2], "<u4").tobytes()
    for path in store.store.path.parent.iterdir():
        assert needle not in path.read_bytes()


def test_a_token_costs_less_than_96_bytes_in_short_answers_too(tmp_path: Path) -> None:
    store = DenseStore.open(tmp_path / "dense.db", "model", 256)
    projection = fit(states(400, width=256))
    keep(store, projection)
    encoded = projection.encode(states(92, width=256))
    for _ in range(100):
        text = store.create_text("chat", first=20)
        for start in range(20, 92, 24):
            places = np.arange(start, start + 24)
            begin = 0 if start == 20 else start
            store.write(
                [TextTokens(text, begin, range(begin, start + 24))],
                [TextKeys(text, places, encoded[places])],
            )
    keys = store.counts()[1]
    store.close()
    assert keys == 100 * 72
    per_model = len(projection.pack())
    assert (store.store.path.stat().st_size - per_model) / keys < 96
