"""The store: what is looked up, what a budget allows, and that nothing is lost, doubled or left."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from datastores.crest import reader as crest_reader
from datastores.crest.build import MAX_NGRAM
from datastores.crest.reader import LOOKUPS_PER_REFRESH, CrestReader, CrestTree
from datastores.crest.selection import MAX_CONTINUATION, MAX_NODES
from datastores.crest.store import MAX_DELTA_TOKENS, CrestStore
from datastores.crest.texts import TokenText
from datastores.errors import StoreError
from datastores.storage.integrity import damage_mark
from tests.datastores.crest.reference import text_of, texts, tree, unfold

AMPLE = 1 << 24


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CrestStore]:
    opened = CrestStore.open(tmp_path / "crest.db", AMPLE)
    yield opened
    opened.close()


def rows(store: CrestStore) -> list[list[tuple[object, ...]]]:
    """Every row of every table."""
    tables = ("tiers", "pages", "pending", "delta", "delta_pages")
    return [store.store.db.conn.execute(f"SELECT * FROM {one}").fetchall() for one in tables]


def words(number: int, length: int = 300) -> TokenText:
    """A text of its own words, among common ones."""
    draw = random.Random(number)
    tokens = [draw.choice((1, 2, 3, 4, 5, number + 10)) for _ in range(length)]
    return text_of(number, tokens, kind=number % 3)


def looked_up(path: Path, context: list[int]) -> list[CrestTree]:
    reader = CrestReader(path)
    try:
        return reader.lookup(context)
    finally:
        reader.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts)
def test_a_lookup_finds_the_tree_of_every_suffix(store: CrestStore, docs: list[TokenText]) -> None:
    store.rebuild(docs)
    context = [0, 1, 2, 0, 1]
    trees = [set(tree(docs, tuple(context[-n:]), MAX_CONTINUATION, 10**6)) for n in (4, 3, 2, 1)]
    found = [set(unfold(entry)) for entry in looked_up(store.store.path, context)]
    for kept, paths in zip(found, filter(None, trees), strict=True):
        assert len(kept) == min(len(paths), MAX_NODES)
        assert kept <= paths
        assert all(path[:-1] in kept for path in kept if len(path) > 1)


def test_an_open_reader_sees_what_is_written(store: CrestStore) -> None:
    reader = CrestReader(store.store.path)
    assert reader.lookup([1, 2]) == []
    store.update([text_of(0, [1, 2, 3])])
    reader.refresh()
    assert [entry.tokens[1] for entry in reader.lookup([1, 2])] == [3, 3]
    assert reader.entries == 3
    store.update([text_of(1, [1, 2, 4])])
    last = [reader.lookup([1, 2]) for _ in range(LOOKUPS_PER_REFRESH)][-1]
    assert {3, 4} <= set(last[0].tokens)
    reader.close()


def test_a_store_made_anew_under_a_reader_is_not_taken_for_damaged(
    store: CrestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crest_reader, "MAX_RESIDENT_PAGES", 0)
    store.rebuild([text_of(0, [1, 2, 10] * 2)])
    reader = CrestReader(store.store.path)
    reader.lookup([2])
    store.rebuild([text_of(1, [token for last in (10, 11, 12) for token in (1, 2, last)] * 2)])
    # Its tokens are more than the reader knows of.
    assert reader.lookup([1, 2])[0].tokens[1:4] == [10, 11, 12]
    assert not damage_mark(store.store.path).exists()
    reader.close()


def test_a_text_of_counts_once(store: CrestStore) -> None:
    store.update([words(1), words(1)])
    once = rows(store)
    store.update([words(1)])
    assert rows(store) == once
    store.rebuild([words(1), words(1)])
    settled = rows(store)
    store.update([words(1)])
    assert rows(store) == settled
    store.rebuild([words(1)])
    assert rows(store) == settled
    assert store.unknown([words(1).identity, words(2).identity]) == [words(2).identity]


def test_the_order_of_texts_makes_no_difference(tmp_path: Path) -> None:
    made = []
    for name, order in (("a", (1, 2, 3, 4)), ("b", (4, 2, 1, 3))):
        store = CrestStore.open(tmp_path / name, AMPLE)
        store.rebuild([words(number) for number in order[:2]])
        store.update([words(number) for number in order[2:]])
        store.rebuild([words(number) for number in order])
        made.append(rows(store))
        store.close()
    assert made[0] == made[1]


def test_what_came_during_a_rebuild_stays_recent(store: CrestStore) -> None:
    store.update([words(1), words(2)])
    store.rebuild([words(1)])
    assert store.unknown([words(1).identity, words(2).identity]) == []
    assert [row[0] for row in rows(store)[2]] == [words(2).identity]


def test_the_recent_tier_says_when_it_is_full(store: CrestStore) -> None:
    large = words(1, MAX_DELTA_TOKENS)
    assert store.update([large])
    before = rows(store)
    assert not store.update([words(2)])
    assert rows(store) == before


def test_forgetting_leaves_a_store_that_never_saw_it(store: CrestStore, tmp_path: Path) -> None:
    kept = [words(1), words(2)]
    store.rebuild(kept)
    store.update([words(3)])
    before = rows(store)
    secret = text_of(9, [1, 2, 3_000_000_019, 3_000_000_020, 3], kind=1)
    store.update([secret])
    assert not store.retain([one.identity for one in (*kept, words(3))])
    assert rows(store) == before
    store.rebuild([*kept, words(3), secret])
    assert store.retain([one.identity for one in (*kept, words(3))])
    for file in tmp_path.iterdir():
        assert (3_000_000_019).to_bytes(4, "little") not in file.read_bytes()
    assert looked_up(store.store.path, [1, 2]) == []
    store.rebuild([*kept, words(3)])
    after = rows(store)
    never = CrestStore.open(tmp_path / "never.db", AMPLE)
    never.rebuild([*kept, words(3)])
    assert rows(never) == after
    never.close()


def test_an_erasure_that_somebody_held_up_is_made_good(store: CrestStore) -> None:
    secret = text_of(9, [1, 2, 3_000_000_019, 3])
    store.update([words(1), secret])
    reader = sqlite3.connect(store.store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM pending").fetchone()
    store.store.db.conn.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(StoreError, match="another"):
        store.retain([words(1).identity])
    reader.close()
    assert not store.retain([words(1).identity])
    for file in store.store.path.parent.iterdir():
        assert (3_000_000_019).to_bytes(4, "little") not in file.read_bytes()


@pytest.mark.parametrize(
    ("budget", "number", "length"),
    [(100_000, 300, 300), (400_000, 300, 300), (200_000, 15_000, 20)],
)
def test_the_file_holds_its_budget(tmp_path: Path, budget: int, number: int, length: int) -> None:
    store = CrestStore.open(tmp_path / "crest.db", budget)
    for _ in range(2):
        store.rebuild(words(one, length) for one in range(number))
        assert store.update([words(number, budget // 100)])
        store.rebuild(words(one, length) for one in range(number))
    store.store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    assert 0.3 * budget < store.size() <= budget
    store.close()


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "crest.db"
    path.write_bytes(b"no database at all, but long enough to be looked at")
    with pytest.raises(StoreError, match=r"crest\.db"):
        looked_up(path, [1, 2])
    store = CrestStore.open(path, AMPLE)
    assert store.store.quarantined is not None
    store.close()


CHILD = """
    import sys
    from pathlib import Path
    from datastores.crest.store import CrestStore
    from tests.datastores.crest.test_store import AMPLE, words

    store = CrestStore.open(Path(sys.argv[1]), AMPLE)
    for number in range(12):
        print("update", flush=True)
        store.update([words(number)])
        if number % 4 == 3:
            print("rebuild", flush=True)
            store.rebuild(words(one) for one in range(number + 1))
"""


def test_killed_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    draw = random.Random(4)
    command = [sys.executable, "-c", textwrap.dedent(CHILD)]
    for path, kills in ((tmp_path / "calm.db", 0), (tmp_path / "killed.db", 5)):
        for _ in range(kills):
            with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                for _ in range(draw.randint(1, 15)):
                    assert child.stdout.readline()
                child.kill()
        subprocess.run([*command, str(path)], check=True, capture_output=True)
    calm = CrestStore.open(tmp_path / "calm.db", AMPLE)
    killed = CrestStore.open(tmp_path / "killed.db", AMPLE)
    assert rows(calm) == rows(killed)
    calm.close()
    killed.close()


def test_no_tree_is_longer_than_it_may_be(store: CrestStore) -> None:
    store.rebuild([words(1, 2000)])
    for entry in looked_up(store.store.path, [1, 2, 3, 4]):
        assert len(entry.tokens) - 1 <= MAX_NODES
        assert max(map(len, unfold(entry))) <= MAX_CONTINUATION
    assert len(looked_up(store.store.path, [1, 2, 3, 4])) <= MAX_NGRAM
