"""The buffer's file: bounded, bound to its target, and empty of what was forgotten."""

from __future__ import annotations

import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datastores.errors import StoreError
from datastores.replay_buffer import store
from datastores.replay_buffer.states import NO_STATES
from datastores.replay_buffer.store import ReplayBuffer, retain
from tests.datastores.conftest import fill
from tests.datastores.replay_buffer.records import VOCABULARY, open_buffer, record
from tests.datastores.replay_buffer.test_record import same


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replay.db"


@pytest.fixture
def buffer(path: Path) -> Iterator[ReplayBuffer]:
    with closing(open_buffer(path)) as opened:
        yield opened


def ids(buffer: ReplayBuffer, after_id: int = 0) -> list[int]:
    return [one.id for one in buffer.records(after_id)]


def holding(path: Path, seed: int) -> list[str]:
    """The files, SQLite's log included, that hold a trace of the record of `seed`."""
    given = record(seed)
    traces = given.tokens[5:15].astype("<i4").tobytes(), given.states.codes[3].tobytes()
    files = {file.name: file.read_bytes() for file in path.parent.glob(f"{path.name}*")}
    return [name for name, content in files.items() if any(trace in content for trace in traces)]


def execute(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def test_records_come_back_in_order(buffer: ReplayBuffer) -> None:
    numbers = [buffer.add("chat:h:1", record(seed)) for seed in range(5)]
    found = list(buffer.records())
    assert [one.id for one in found] == numbers == [1, 2, 3, 4, 5]
    assert all(same(one, record(seed)) for seed, one in enumerate(found))
    assert ids(buffer, 3) == [4, 5]
    assert (buffer.size, buffer.last_id) == (5, 5)
    assert buffer.damaged == {}


def test_the_oldest_make_room(path: Path) -> None:
    with closing(open_buffer(path)) as buffer:
        buffer.add("a", record())
        size = buffer.total_bytes
    with closing(open_buffer(path, 3 * size)) as buffer:
        for seed in range(1, 9):
            buffer.add("a", record(seed))
            assert buffer.total_bytes <= 3 * size
        assert ids(buffer) == [7, 8, 9]
        buffer.add("a", record(20, length=4000, rows=900))
        assert ids(buffer) == [10], "a large one stands alone"
        assert holding(path, 3) == [] or "replay.db" not in holding(path, 3)


def test_states_come_with_records_that_have_them(
    buffer: ReplayBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_STATES", 70)  # of two records
    for seed in range(4):
        buffer.add("a", record(seed))
    buffer.add("a", replace(record(4), states=NO_STATES))
    assert all(not len(one.states) for one in buffer.records())
    found = list(buffer.records(with_states=True))
    assert [one.id for one in found] == [3, 4]
    assert sum(len(one.states) for one in found) == 60
    assert buffer.state_bytes > sum(one.states.codes.nbytes for one in found) // 2
    for one in found:
        np.testing.assert_array_equal(one.states.codes, record(one.id - 1).states.codes)
        np.testing.assert_array_equal(one.states.decoded(), record(one.id - 1).states.decoded())


@pytest.mark.parametrize("damage", ["zeroblob(9)", "'text'", "substr(packed, 1, 60)"])
def test_damaged_states_cost_one_record(path: Path, buffer: ReplayBuffer, damage: str) -> None:
    for seed in range(3):
        buffer.add("a", record(seed))
    execute(path, f"UPDATE states SET packed = {damage} WHERE record = 2")
    assert [one.id for one in buffer.records(with_states=True)] == [1, 3]
    assert list(buffer.damaged) == [2]
    assert ids(buffer) == [1, 2, 3], "without states it is sound"


def test_what_is_added_while_records_are_read_is_read_too(buffer: ReplayBuffer) -> None:
    buffer.add("a", record())
    reading = buffer.records()
    assert next(reading).id == 1
    buffer.add("a", record(1))
    assert next(reading).id == 2


def test_it_is_its_owners_alone(path: Path, buffer: ReplayBuffer) -> None:
    buffer.add("a", record())
    for file in path.parent.glob("replay.db*"):
        if file.suffix != ".lock":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_another_targets_buffer_is_refused(path: Path, buffer: ReplayBuffer) -> None:
    for fingerprint, vocabulary in (("other", VOCABULARY), ("target", VOCABULARY + 1)):
        with pytest.raises(StoreError, match="another model"):
            ReplayBuffer.open(path, fingerprint, vocabulary)


def test_what_no_target_can_have_said_is_not_stored(buffer: ReplayBuffer) -> None:
    poisoned = record()
    poisoned.top_logprobs[0, 0] = np.nan
    with pytest.raises(ValueError, match="not a number"):
        buffer.add("a", poisoned)
    assert (buffer.size, buffer.last_id) == (0, 0)


def test_a_damaged_record_is_named_and_left_out(path: Path, buffer: ReplayBuffer) -> None:
    for seed in range(4):
        buffer.add("a", record(seed))
    execute(path, "UPDATE records SET packed = zeroblob(size) WHERE id = 2")
    execute(path, "UPDATE records SET packed = 'text' WHERE id = 3")
    assert ids(buffer) == [1, 4]
    assert list(buffer.damaged) == [2, 3]
    message = str(buffer.damaged[2])
    assert str(path) in message
    assert "record 2" in message
    assert "\n" not in message


def test_a_record_moved_to_another_chat_is_left_out(path: Path, buffer: ReplayBuffer) -> None:
    buffer.add("a", record())
    buffer.add("b", record(1))
    execute(path, "UPDATE records SET source = 'b' WHERE id = 1")
    assert ids(buffer) == [2]


def test_what_is_forgotten_leaves_no_byte(path: Path, buffer: ReplayBuffer) -> None:
    for seed in range(30):
        buffer.add(f"chat:h:{seed % 3}", record(seed))
    assert holding(path, 4)
    buffer.forget("chat:h:1")
    for seed in range(30):
        assert bool(holding(path, seed)) == (seed % 3 != 1)
    assert ids(buffer) == [number for number in range(1, 31) if (number - 1) % 3 != 1]
    assert not any(b"chat:h:1" in file.read_bytes() for file in path.parent.glob("replay.db*"))


def test_retaining_forgets_what_is_not_offered_any_more(path: Path) -> None:
    with closing(open_buffer(path)) as buffer:
        for seed, owner in enumerate(["chat:h:1", "chat:h:2", "text:3"]):
            buffer.add(owner, record(seed))
    (path.parent / "replay.db.corrupt-20260101-000000").write_bytes(b"chat")
    retain(path, ("chat:",), {"chat:h:2"})
    with closing(open_buffer(path)) as buffer:
        assert ids(buffer) == [2, 3]
    assert holding(path, 0) == []
    assert list(path.parent.glob("*corrupt*")) == []


def test_a_removal_taints_what_was_learned_from_it(buffer: ReplayBuffer) -> None:
    for owner in ("a", "b", "a"):
        buffer.add(owner, record())
    old, new = (1, buffer.last_removal), (buffer.last_id, buffer.last_removal)
    buffer.forget("b")
    assert not buffer.removed_since(*old), "it knew nothing of it"
    assert buffer.removed_since(*new)
    retrained = (buffer.last_id, buffer.last_removal)
    assert not buffer.removed_since(*retrained)
    buffer.forget("never recorded")
    assert not buffer.removed_since(*retrained)


def test_an_owner_whose_records_made_room_is_still_known(path: Path) -> None:
    with closing(open_buffer(path, 1)) as buffer:
        buffer.add("old", record())
        buffer.add("new", record(1))
        assert ids(buffer) == [2]
        version = (buffer.last_id, buffer.last_removal)
        retain(path, ("old",), ())
        assert buffer.removed_since(*version)


@pytest.mark.parametrize("damage", [b"", b"no database" * 99])
def test_a_damaged_file_is_named_and_deleted_and_another_begun(path: Path, damage: bytes) -> None:
    with closing(open_buffer(path)) as buffer:
        buffer.add("a", record())
        first = buffer.identity
    path.write_bytes(damage)
    with pytest.raises(StoreError, match="was damaged and is deleted") as error:
        open_buffer(path)
    assert "\n" not in str(error.value)
    with closing(open_buffer(path)) as buffer:
        assert buffer.identity != first
        assert buffer.size == 0
        buffer.add("a", record())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.glob("*corrupt*")) == []


def _add_many(buffer: ReplayBuffer) -> None:
    for seed in range(1, 50):
        buffer.add("a", record(seed, length=2000, rows=200))


def test_a_full_disk_costs_only_what_came_after(small_disk: Path) -> None:
    path = small_disk / "replay.db"
    with closing(open_buffer(path)) as buffer:
        buffer.add("a", record())
        ballast = fill(small_disk)
        with pytest.raises(StoreError, match="full"):
            _add_many(buffer)
        kept = ids(buffer)
        assert kept == list(range(1, len(kept) + 1))
        ballast.unlink()
        buffer.add("a", record(99))
        assert same(list(buffer.records())[-1], record(99))
        assert buffer.damaged == {}


CHILD = """
import sys
from pathlib import Path
from tests.datastores.replay_buffer.records import open_buffer, record
buffer = open_buffer(Path(sys.argv[1]), 200_000)
buffer.store.db.conn.execute("PRAGMA synchronous = OFF")
for seed in range(100_000):
    number = buffer.add(f"chat:{sys.argv[2]}:{seed % 5}", record(seed))
    if seed % 7 == 6:
        buffer.forget(f"chat:{sys.argv[2]}:3")
    print(number, flush=True)
"""


def start_child(path: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(path), name]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def test_two_killed_writers_leave_whole_records(path: Path) -> None:
    children = [start_child(path, name) for name in ("one", "two")]
    for child in children:
        assert child.stdout is not None
        with child, child.stdout as lines:
            for _ in range(40):
                next(lines)
            child.send_signal(signal.SIGKILL)
    with closing(open_buffer(path)) as buffer:
        assert buffer.store.quarantined is None
        found = list(buffer.records())
        assert buffer.damaged == {}
        assert buffer.total_bytes <= 200_000
        assert all(same(one, record(int(one.created - 1.7e9))) for one in found)
        assert len(list(buffer.records(with_states=True))) == len(found)
        assert found
        buffer.forget("chat:one:3")
        buffer.add("chat:one:3", record())
