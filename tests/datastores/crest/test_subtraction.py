"""Subtracting: what is left is what brute force counts in the other texts, and no byte more."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import closing
from errno import ENOSPC
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.crest.build import MAX_NGRAM, count, select
from datastores.crest.format import hashes, place
from datastores.crest.selection import MAX_CONTINUATION, MAX_NODES
from datastores.crest.store import CrestStore, pack_ids, unpack_ids
from datastores.crest.subtraction import (
    ExactEntry,
    page_entries,
    read_entry,
    write_entry,
    write_page,
)
from datastores.crest.texts import TokenText
from datastores.errors import StoreError
from tests.datastores.crest.reference import Path as Tokens
from tests.datastores.crest.reference import strings, text_of, texts
from tests.datastores.crest.test_build import text_like
from tests.datastores.crest.test_store import looked_up, words

AMPLE = 1 << 24
ALONE = 3_000_000_019
"""A token id of the forgotten text alone; its bytes occur nowhere else."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrestStore]:
    monkeypatch.setattr("datastores.crest.store.MIN_REBUILD_SHARE", 0)
    with closing(CrestStore.open(tmp_path / "crest.db", AMPLE)) as opened:
        yield opened


def entries(store: CrestStore) -> dict[tuple[int, int, int], tuple[int, dict[Tokens, int]]]:
    """Every n-gram of the base tier by page, mark and check: its count, and those of its paths."""
    found = {}
    for row in store.store.rows("SELECT longest, ids FROM tiers"):
        ids = unpack_ids(row["ids"])
        for page in store.store.rows("SELECT number, entries FROM pages"):
            for mark, data in page_entries(page["entries"]):
                entry = read_entry(data)
                found[page["number"], mark, entry.check] = entry.counts[0], paths(entry, ids)
    return found


def paths(entry: ExactEntry, ids: Sequence[int]) -> dict[Tokens, int]:
    """Every path of a tree, with its count."""
    above: dict[int, Tokens] = {0: ()}
    for row, (first, last) in enumerate(entry.children):
        for child in range(first, last):
            rank = sum((byte & 127) << 7 * at for at, byte in enumerate(entry.ranks[child]))
            above[child] = (*above[row], ids[rank])
    return {path: entry.counts[row] for row, path in above.items() if row}


def key(store: CrestStore, ngram: Tokens) -> tuple[int, int, int]:
    """Where the entry of `ngram` is, in a store that has a base tier."""
    value = hashes(ngram, len(ngram))[-1]
    pages = store.store.rows("SELECT pages FROM tiers")[0]["pages"]
    return (*place(value, pages), value >> 48)


def must_be_those_of(
    store: CrestStore, docs: Sequence[TokenText], least: int, full: int | None = None
) -> None:
    """Every count is that of brute force over `docs`; with `full`, no n-gram of them is missing.

    Args:
        full: trees of at most so many paths must be complete.
    """
    found = entries(store)
    counted = {
        length: strings(docs, length) for length in range(1, MAX_NGRAM + MAX_CONTINUATION + 1)
    }
    after: dict[Tokens, dict[Tokens, int]] = {}
    for length, level in counted.items():
        for string, occurrences in level.items():
            for n in range(max(1, length - MAX_CONTINUATION), min(MAX_NGRAM, length - 1) + 1):
                if occurrences >= least:
                    after.setdefault(string[:n], {})[string[n:]] = occurrences
    for ngram, exact in after.items():
        total, kept = found.pop(key(store, ngram), (0, {}))
        if total:
            assert total == counted[len(ngram)][ngram]
        assert kept.items() <= exact.items()
        if full is not None and len(exact) <= full:
            assert kept == exact
    assert not found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, st.sets(st.integers(0, 5)))
def test_what_is_left_is_counted_by_brute_force(
    store: CrestStore, docs: list[TokenText], leaving: set[int]
) -> None:
    store.rebuild(docs)
    whole = all(len(kept) < MAX_NODES for _, kept in entries(store).values())
    gone = [one for number, one in enumerate(docs) if number in leaving]
    left = [one for number, one in enumerate(docs) if number not in leaving]
    assert not store.forget(gone)
    must_be_those_of(store, left, 1, MAX_NODES if whole else None)
    assert store.unknown([one.identity for one in docs]) == [one.identity for one in gone]


def test_a_store_under_a_budget_keeps_exact_counts(store: CrestStore) -> None:
    docs = text_like(20_000)
    store.budget_bytes = 60_000
    store.rebuild(docs)
    least = store.store.rows("SELECT least FROM tiers")[0]["least"]
    assert least > 1
    must_be_those_of(store, docs, least)
    assert not store.forget(docs[3:9])
    must_be_those_of(store, [*docs[:3], *docs[9:]], least)


def test_one_after_the_other_leaves_what_all_at_once_leave(
    store: CrestStore, tmp_path: Path
) -> None:
    docs = [words(number) for number in range(12)]
    store.rebuild(docs)
    for one in docs[:5]:
        store.forget([one])
    with closing(CrestStore.open(tmp_path / "other.db", AMPLE)) as other:
        other.rebuild(docs)
        other.forget(docs[:5])
        assert entries(other) == entries(store)
        uses = "SELECT ids, uses, documents, entries, tokens FROM tiers"
        assert other.store.rows(uses) == store.store.rows(uses)


def test_entries_are_written_by_python_as_by_numpy() -> None:
    counted = count(text_like(20_000), AMPLE)
    for _, page in select(counted, AMPLE, exact=True).pages:
        found = list(page_entries(page))
        assert [write_entry(read_entry(data)) for _, data in found] == [data for _, data in found]
        assert write_page(found) == page


def test_exact_counts_change_no_tree() -> None:
    counted = count(text_like(5_000), AMPLE)
    plain, exact = select(counted, AMPLE), select(counted, AMPLE, exact=True)
    assert plain.entry_count == exact.entry_count
    assert pack_ids(plain.ids) == pack_ids(exact.ids)
    assert len(exact.uses) == len(exact.ids)
    assert all(exact.uses)


def traces(path: Path) -> bytes:
    """All files of the store, as they are on disk."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.parametrize("pending", [True, False])
def test_no_byte_of_what_was_forgotten_is_left(store: CrestStore, pending: bool) -> None:
    kept = [words(number) for number in range(8)]
    secret = text_of(2**63 + 12345, [1, 2, ALONE, 3, ALONE + 1, 5, 4, 4, 3], kind=1)
    store.rebuild(kept if pending else [*kept, secret])
    if pending:
        assert store.update([secret])
    ids = store.store.rows("SELECT ids FROM tiers UNION ALL SELECT ids FROM delta")
    assert any(ALONE in unpack_ids(row["ids"]) for row in ids)
    assert not store.forget([secret])
    content = traces(store.store.path)
    assert ALONE.to_bytes(4, "little") not in content
    assert (ALONE + 1).to_bytes(4, "little") not in content
    assert secret.identity not in content
    assert [entry.kind for entry in looked_up(store.store.path, [1, 2, ALONE])] == []
    must_be_those_of(store, kept, 1)


def test_no_row_of_the_base_tier_is_in_the_file_twice(store: CrestStore) -> None:
    """What overwriting rows where they are rests on: a copy elsewhere would stay."""
    docs = text_like(20_000)
    for part in (docs, docs[:10], docs[:20], docs[:2]):
        store.rebuild(part)
        store.forget(part[:1])
        content = traces(store.store.path)
        pages = store.store.rows("SELECT entries FROM pages WHERE number < 40 OR number % 90 = 0")
        assert all(content.count(page["entries"][:64]) == 1 for page in pages if page["entries"][0])


def test_pages_that_changed_leave_no_copy(store: CrestStore) -> None:
    docs = text_like(10_000)
    store.rebuild(docs)
    before = {row["number"]: row["entries"] for row in store.store.rows("SELECT * FROM pages")}
    store.forget(docs[5:7])
    content = traces(store.store.path)
    after = {row["number"]: row["entries"] for row in store.store.rows("SELECT * FROM pages")}
    changed = [number for number, page in before.items() if after[number] != page]
    assert len(changed) > 200
    assert not any(before[number] in content for number in changed[::10])


def test_more_than_is_worth_subtracting_empties_the_base_tier(tmp_path: Path) -> None:
    docs = [words(number) for number in range(8)]
    with closing(CrestStore.open(tmp_path / "crest.db", AMPLE)) as store:
        store.rebuild(docs)
        assert store.forget(docs[:2])
        assert looked_up(store.store.path, [1, 2]) == []
        store.rebuild(docs[2:])
        must_be_those_of(store, docs[2:], 1)


def test_more_than_fits_the_memory_is_counted_anew(
    store: CrestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = [words(number) for number in range(8)]
    store.rebuild(docs)
    monkeypatch.setattr("datastores.crest.store.MAX_SUBTRACTED_TOKENS", len(docs[0].tokens))
    assert not store.forget(docs[:1])
    assert store.forget(docs[1:3])


def test_no_room_for_what_exceeds_the_memory_is_an_error(
    store: CrestStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("datastores.crest.columns.SPOOLED_BYTES", 64)
    before = [words(0)]
    store.rebuild(before)
    monkeypatch.setattr("datastores.crest.columns.SpooledTemporaryFile", FullFile)
    with pytest.raises(StoreError, match="No space left on device"):
        store.rebuild([words(1)])
    must_be_those_of(store, before, 1)


class FullFile(BytesIO):
    """A file on a full disk."""

    def __init__(self, size: int, dir: str) -> None:
        super().__init__()

    def write(self, content: object) -> int:
        raise OSError(ENOSPC, os.strerror(ENOSPC))


def test_what_a_reader_held_up_is_completed(store: CrestStore) -> None:
    secret = text_of(9, [1, 2, ALONE, 3])
    store.rebuild([words(1), words(2), secret])
    reader = sqlite3.connect(store.store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM pages").fetchone()
    store.store.db.conn.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(StoreError, match="another"):
        store.forget([secret])
    reader.close()
    assert not store.forget([])
    assert ALONE.to_bytes(4, "little") not in traces(store.store.path)


CHILD = """
    import sys
    from pathlib import Path
    import datastores.crest.store
    from datastores.crest.store import CrestStore
    from tests.datastores.crest.test_store import words

    datastores.crest.store.MIN_REBUILD_SHARE = 0
    store = CrestStore.open(Path(sys.argv[1]), 1 << 24)
    print("open", flush=True)
    for number in range(10):
        store.forget([words(number)])
"""


def test_killed_while_forgetting_ends_as_undisturbed(store: CrestStore, tmp_path: Path) -> None:
    draw = random.Random(4)
    docs = [words(number) for number in range(20)]
    for path, kills in ((tmp_path / "calm.db", 0), (tmp_path / "killed.db", 4)):
        with closing(CrestStore.open(path, AMPLE)) as made:
            made.rebuild(docs)
        command = [sys.executable, "-c", textwrap.dedent(CHILD), str(path)]
        for _ in range(kills):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                child.stdout.readline()
                try:
                    child.wait(draw.uniform(0.0, 0.1))
                except subprocess.TimeoutExpired:
                    child.kill()
        subprocess.run(command, check=True, capture_output=True)
        with closing(CrestStore.open(path, AMPLE)) as made:
            made.forget([])
            must_be_those_of(made, docs[10:], 1)
            assert made.store.rows("PRAGMA application_id")[0]["application_id"] == 0
    calm, killed = (
        sqlite3.connect(tmp_path / name).execute("SELECT * FROM pages").fetchall()
        for name in ("calm.db", "killed.db")
    )
    assert calm == killed
