"""A dense index in which something else stands than was written: dropped, made anew or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from datastores.dense.recorder import FIRST, DenseRecorder
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from datastores.errors import StoreError
from tests.datastores.dense.test_worker import VOCABULARY, WIDTH, find, open_store, state_of, tell
from tests.datastores.dense.test_worker import word as word_at

SAID = FIRST + 100


def fill(folder: Path) -> Path:
    """An index of two chats; its file."""
    keeper = DenseWorker(open_store(folder), VOCABULARY)
    tell(keeper, SAID)
    tell(keeper, 60, source="other")
    keeper.close()
    return folder / "dense.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_generation_and_moments_of_another_model_are_dropped(tmp_path: Path) -> None:
    path = fill(tmp_path)
    change(path, "UPDATE model SET fingerprint = 'elsewhere'")
    with closing(DenseStore.open(path, "elsewhere", WIDTH)) as other:
        assert other.generations.all() == []
        assert other.store.rows("SELECT count(*) AS n FROM keys")[0]["n"] == 0
        assert other.moments().count == 0
        assert len(other.tokens(1)) == SAID, "tokens are anyone's"
        assert other.unfinished(None) == [1, 2]


@pytest.mark.parametrize("gone", [1, 2])
def test_keys_of_tokens_that_are_not_there_are_left_out(tmp_path: Path, gone: int) -> None:
    path = fill(tmp_path)
    change(path, f"DELETE FROM spans WHERE document = {gone}")
    keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
    keys = keeper.ask(DenseRecorder.status).keys
    kept = len(keeper.memory)
    position, left = (20, 55) if gone == 1 else (200, SAID - 5)
    assert kept == left
    assert kept < keys
    continuation = [word_at(position + n) for n in range(1, 5)]
    assert find(keeper.memory, position).continuations[0] == continuation
    assert keeper.ask(lambda book: book.wanting(gone).positions.tolist()) == []
    keeper.close()
    assert keeper.trouble is None


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
    keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
    with pytest.raises(StoreError, match="the next start sets it aside") as refused:
        keeper.ask(DenseRecorder.status)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert keeper.memory.recall(state_of(20), word_at(20), [], 3, 4) is None
    keeper.close()
    with closing(open_store(tmp_path)) as again:
        assert again.store.quarantined is not None
        assert again.counts(None) == (0, 0)
    with closing(open_store(tmp_path)) as last:
        assert last.store.quarantined is None


def test_a_damaged_block_of_keys_gives_way_to_what_is_written(tmp_path: Path) -> None:
    keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
    tell(keeper, SAID)
    change(tmp_path / "dense.db", "UPDATE keys SET codes = x'00'")
    keeper.begin("chat", [word_at(position) for position in range(SAID)])
    tell(keeper, SAID + 5, start=SAID)
    assert keeper.trouble is None
    keeper.close()
