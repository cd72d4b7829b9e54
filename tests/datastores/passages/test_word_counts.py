"""Counted words are the store's own, read and not counted again, and leave with their passages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.passages import word_counts
from datastores.passages.chunks import Chunk
from datastores.passages.store import INDEX, PassageStore
from datastores.passages.word_counts import (
    CONTENT_BITS,
    COUNT_BITS,
    StoredWords,
    key_of,
    surface_forms,
)
from datastores.storage.integrity import with_checksum
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.word_index import WordIndex

WORDS = ("archive", "copies", "snapshot", "volumes", "encrypting", "key", "disks")
QUERIES = ["archive key", "copy of a snapshot", "encrypted volume disk", "page"]
ODD = ("", "a " * 500, "naïve NAÏVE naive", "don't_stop 日本語 x86", "\0 \ud7ff 🙂", "page page")


def key(number: int) -> bytes:
    return number.to_bytes(2)


def put(store: PassageStore, number: int) -> None:
    """Three passages."""
    chunks = (
        Chunk(f"{WORDS[number % 7]} page", 1, 1, " ".join(WORDS[: 1 + (number * part) % 7]))
        for part in (1, 2, 3)
    )
    store.add(key(number), [(0, chunk) for chunk in chunks])


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(PassageStore.open(tmp_path / "passages.sqlite")) as store:
        for number in range(6):
            put(store, number)
        yield store


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The texts that are counted from here on."""
    texts: list[tuple[str, str]] = []
    count = word_counts.count_words

    def record(given: Sequence[tuple[str, str]]) -> list[word_counts.Words]:
        texts.extend(given)
        return count(given)

    monkeypatch.setattr(word_counts, "count_words", record)
    return texts


def fill(store: PassageStore) -> list[int]:
    return list(StoredWords(store).fill())


def rankings(store: PassageStore) -> list[list[tuple[int, float]]]:
    """What an index that is opened now finds."""
    with closing(WordIndex(PassageStore(store.store.new_connection()))) as index:
        index.update()
        return [[(one.passage.id, one.score) for one in row] for row in index.search(QUERIES, -1)]


def counted_anew(store: PassageStore) -> list[list[tuple[int, float]]]:
    with store.store.writing() as db:
        db.conn.execute("DELETE FROM words")
    return rankings(store)


def test_words_are_those_of_the_stores_own_index(passages: PassageStore) -> None:
    passages.add(b"odd", [(0, Chunk(odd, 1, 1, other)) for odd in ODD for other in ODD])
    ids = [row["id"] for row in passages.store.rows("SELECT id FROM chunks ORDER BY id")]
    loaded = StoredWords(passages).load(ids)
    assert loaded.ids.tolist() == ids
    found: Counter[tuple[int, int]] = Counter()
    for number, row in zip(ids, np.split(loaded.words, np.cumsum(loaded.sizes)[:-1]), strict=True):
        found |= {(number, word >> COUNT_BITS): word % (1 << COUNT_BITS) for word in row.tolist()}
    connection = passages.store.db.conn
    connection.execute(f"CREATE VIRTUAL TABLE temp.own USING fts5vocab(main, {INDEX}, instance)")
    expected: Counter[tuple[int, int]] = Counter()
    for term, document, column in connection.execute("SELECT term, doc, col FROM own"):
        expected[document, key_of(term)] += 1 << CONTENT_BITS if column == "heading" else 1
    # `a` stands 500 times in some headings, of which 63 are counted.
    excess = (500 - word_counts.MAX_IN_HEADING) << CONTENT_BITS
    clipped = {
        one: count - excess if count >> CONTENT_BITS == 500 else count
        for one, count in expected.items()
    }
    assert found == clipped


def test_opening_reads_and_an_added_text_is_counted_alone(
    passages: PassageStore, counted: list[tuple[str, str]]
) -> None:
    assert fill(passages) == [18]
    expected = rankings(passages)
    assert len(counted) == 18
    put(passages, 6)
    assert rankings(passages) != expected
    assert len(counted) == 21
    assert rankings(passages) == counted_anew(passages)
    assert StoredWords(passages).missing() == []


def test_what_is_removed_leaves_no_byte_of_its_words(
    passages: PassageStore, tmp_path: Path
) -> None:
    passages.add(b"secret", [(0, Chunk("", 1, 1, "xylophone quartz"))])
    fill(passages)
    words = [key_of(term).to_bytes(6, "little") for term in ("xylophon", "quartz")]

    def held() -> list[bool]:
        content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        return [word in content for word in words]

    assert held() == [True, True]
    passages.remove([b"secret"])
    assert held() == [False, False]


def test_damage_is_counted_again_and_logged(
    passages: PassageStore, counted: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    expected = rankings(passages)
    counted.clear()
    with passages.store.writing() as db:
        (first, second, third, *_) = [row[0] for row in db.conn.execute("SELECT id FROM words")]
        sql = "UPDATE words SET counts = {} WHERE id = ?"
        db.conn.execute(sql.format("x'00'"), (first,))
        db.conn.execute(sql.format("counts || x'00'"), (second,))
        other = "(SELECT counts FROM words WHERE id <> ?1 ORDER BY id DESC)"
        db.conn.execute(sql.format(other).replace("= ?", "= ?1"), (third,))
    with caplog.at_level(logging.WARNING):
        assert rankings(passages) == expected
    assert len(counted) == 3
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "counting 3 damaged passages again"
    ]
    assert rankings(passages) == expected
    assert len(counted) == 3


def test_a_failure_within_a_batch_stores_nothing_of_it(
    passages: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = counted_anew(passages)
    with passages.store.writing() as db:
        db.conn.execute("DELETE FROM words")
    with monkeypatch.context() as patch:
        patch.setattr(word_counts, "BATCH", 5)
        owners: list[str] = []

        def checksum(owner: str, body: bytes) -> bytes:
            owners.append(owner)
            if len(owners) == 8:
                raise KeyboardInterrupt
            return with_checksum(owner, body)

        patch.setattr(word_counts, "with_checksum", checksum)
        with pytest.raises(KeyboardInterrupt):
            fill(passages)
    assert len(StoredWords(passages).missing()) == 13
    assert rankings(passages) == expected


STEPS = st.one_of(
    st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["update", "fill", "stop", "lose", "damage"]), st.just(0)),
)


@settings(max_examples=20)
@given(st.lists(STEPS, max_size=12))
def test_loaded_equals_counted_after_any_steps(steps: list[tuple[str, int]]) -> None:
    with (
        TemporaryDirectory() as folder,
        closing(PassageStore.open(Path(folder) / "passages.sqlite")) as store,
        closing(WordIndex(PassageStore(store.store.new_connection()))) as index,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(word_counts, "BATCH", 2)
        put(store, 0)
        for step, number in steps:
            take(step, number, store, index)
        index.update()
        followed = [
            [(one.passage.id, one.score) for one in row] for row in index.search(QUERIES, -1)
        ]
        assert followed == rankings(store)
        assert StoredWords(store).missing() == []
        assert followed == counted_anew(store)
        by_fts5 = Bm25Retriever(store).search(QUERIES, -1)
        for ours, theirs in zip(followed, by_fts5, strict=True):
            assert {one for one, _ in ours} == {one.passage.id for one in theirs}


def take(step: str, number: int, store: PassageStore, index: WordIndex) -> None:
    match step:
        case "add":
            put(store, number)
        case "remove":
            store.remove([key(number)])
        case "update":
            index.update()
        case "fill":
            fill(store)
        case "stop":
            stopped = StoredWords(store).fill()
            for _ in zip(range(2), stopped, strict=False):
                pass
            stopped.close()
        case _:
            lose, damage = "DELETE FROM words", "UPDATE words SET counts = counts || x'00'"
            with store.store.writing() as db:
                db.conn.execute(f"{lose if step == 'lose' else damage} WHERE id % 3 = 0")


def test_stems_that_are_no_words_get_an_ending() -> None:
    stems = ["remov", "databas", "eras", "alia", "directori", "x1"]
    assert surface_forms(stems) == ["remov", "database", "erase", "alia", "directori", "x1"]
    assert surface_forms([]) == []
