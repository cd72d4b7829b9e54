"""A damaged dense index is dropped, rebuilt or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from datastores.errors import StoreError
from tests.datastores.dense.test_worker import (
    SAMPLE,
    VOCABULARY,
    WIDTH,
    find,
    open_store,
    record,
    state_of,
)
from tests.datastores.dense.test_worker import word as word_at

SAID = SAMPLE + 100


def fill(folder: Path) -> Path:
    """An index of two chats; its file."""
    worker = DenseWorker(open_store(folder), VOCABULARY)
    record(worker, SAID)
    record(worker, 60, owner="other")
    worker.close()
    return folder / "dense.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_the_projection_and_keys_of_another_model_are_dropped(tmp_path: Path) -> None:
    path = fill(tmp_path)
    change(path, "UPDATE model SET fingerprint = 'elsewhere'")
    with closing(DenseStore.open(path, "elsewhere", WIDTH)) as other:
        assert other.projection() is None
        assert other.store.rows("SELECT count(*) AS n FROM keys")[0]["n"] == 0
        assert len(other.tokens(1)) == SAID, "tokens are anyone's"
        assert other.incomplete() == [1, 2]


@pytest.mark.parametrize("gone", [1, 2])
def test_keys_of_tokens_that_are_not_there_are_left_out(tmp_path: Path, gone: int) -> None:
    path = fill(tmp_path)
    change(path, f"DELETE FROM spans WHERE document = {gone}")
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    keys = worker.ask(DenseIndex.status).keys
    kept = len(worker.memory)
    position, left = (20, 55) if gone == 1 else (200, SAID - 5)
    assert kept == left
    assert kept < keys
    continuation = [word_at(position + n) for n in range(1, 5)]
    assert find(worker.memory, position).continuations[0] == continuation
    assert worker.ask(lambda index: index.missing_keys(gone).positions.tolist()) == []
    worker.close()
    assert worker.error is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE spans SET tokens = substr(tokens, 1, length(tokens) - 1)",
        "UPDATE keys SET codes = substr(codes, 1, length(codes) - 1)",
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line_and_made_anew(
    tmp_path: Path, statement: str
) -> None:
    path = fill(tmp_path)
    change(path, statement)
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    with pytest.raises(StoreError, match="the next start sets it aside") as refused:
        worker.ask(DenseIndex.status)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert worker.memory.search(state_of(20), word_at(20), [], 3, 4) is None
    worker.close()
    with closing(open_store(tmp_path)) as again:
        assert again.store.quarantined is not None
        assert again.counts() == (0, 0)
    with closing(open_store(tmp_path)) as last:
        assert last.store.quarantined is None


def test_a_damaged_block_of_keys_gives_way_to_what_is_written(tmp_path: Path) -> None:
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(worker, SAID)
    change(tmp_path / "dense.db", "UPDATE keys SET codes = x'00'")
    worker.begin("chat", [word_at(position) for position in range(SAID)])
    record(worker, SAID + 5, start=SAID)
    assert worker.error is None
    worker.close()
