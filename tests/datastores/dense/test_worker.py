"""The worker of a dense index: what is said can be found at once, and again after any death."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datastores.dense.index import DenseIndex
from datastores.dense.memory import GAP, DenseMemory, Matches
from datastores.dense.projection import Floats
from datastores.dense.store import DenseStore, TextKeys, TextTokens
from datastores.dense.worker import DenseWorker, WorkerClosedError
from datastores.errors import StoreError
from tests.waiting import TIMEOUT_S

WIDTH, RANK, VOCABULARY = 96, 40, 50
SAMPLE = 256
"""States the projection is fitted to in tests."""


@cache
def mixing(seed: int) -> Floats:
    """The subspace that states of one kind lie in."""
    return np.random.default_rng([7, seed]).normal(size=(RANK, WIDTH)).astype(np.float32)


@cache
def state_of(position: int, seed: int = 0) -> Floats:
    """The state that produced the token at a position."""
    generator = np.random.default_rng([position, seed])
    return generator.normal(size=RANK).astype(np.float32) @ mixing(seed)


def word(position: int) -> int:
    """The token at a position."""
    return position * position % VOCABULARY


def said(start: int, stop: int, seed: int = 0) -> tuple[list[int], Floats]:
    """Tokens of positions and the states that produced them."""
    tokens = [word(position) for position in range(start, stop)]
    return tokens, np.array([state_of(position, seed) for position in range(start, stop)])


def open_store(folder: Path) -> DenseStore:
    return DenseStore.open(folder / "dense.db", "model", WIDTH)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[DenseWorker]:
    opened = DenseWorker(open_store(tmp_path), VOCABULARY)
    yield opened
    opened.close()
    assert opened.error is None


def record(worker: DenseWorker, stop: int, start: int = 5, owner: str = "chat") -> None:
    """Have an answer from `start` to `stop` recorded, five tokens a step."""
    worker.begin(owner, [word(position) for position in range(start)])
    for first in range(start, stop, 5):
        worker.observe(first, *said(first, min(stop, first + 5)))
    worker.ask(DenseIndex.flush)


def find(memory: DenseMemory, position: int, k: int = 3) -> Matches:
    before = [word(p) for p in range(position)]
    matches = memory.search(state_of(position), word(position), before, k, 4)
    assert matches is not None
    return matches


def test_nothing_is_found_before_the_first_fit_and_all_after_it(worker: DenseWorker) -> None:
    record(worker, SAMPLE)
    assert worker.memory.search(state_of(9), word(9), [], 3, 4) is None
    status = worker.ask(DenseIndex.status)
    assert (status.held, status.keys, status.positions) == (SAMPLE - 5, 0, SAMPLE - 1)
    worker.observe(SAMPLE, *said(SAMPLE, SAMPLE + 10))
    assert worker.ask(DenseIndex.status).keys == SAMPLE + 5
    for position in (5, 77, SAMPLE):
        matches = find(worker.memory, position)
        assert matches.similarities[0] > 0.99
        assert matches.continuations[0] == [word(position + n) for n in range(1, 5)]
        assert matches.suffixes[0] == min(8, position)


def test_what_was_found_live_is_found_after_a_restart(tmp_path: Path) -> None:
    live = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(live, 400)
    record(live, 300, start=40, owner="other")
    expected = [find(live.memory, position) for position in range(50, 290, 7)]
    live.close()
    again = DenseWorker(open_store(tmp_path), VOCABULARY)
    again.ask(lambda index: None)
    for position, matches in zip(range(50, 290, 7), expected, strict=True):
        found = find(again.memory, position)
        assert found.similarities == matches.similarities
        assert found.continuations == matches.continuations
        assert any(matches.current)
        assert not any(found.current)
    again.close()


def test_a_continuation_ends_with_its_text(worker: DenseWorker) -> None:
    record(worker, 400)
    record(worker, 20, owner="other")
    matches = find(worker.memory, 398)
    assert matches.continuations[0][:2] == [word(399), GAP]
    only = find(worker.memory, 399)
    assert max(only.similarities, default=0.0) <= 0.99, "an end has no continuation to lend"


def test_a_chat_goes_on_in_its_text_and_a_new_version_of_it_shares_the_start(
    worker: DenseWorker,
) -> None:
    record(worker, 300)
    worker.begin("chat", [word(position) for position in range(310)])
    worker.observe(310, *said(310, 320))
    assert worker.ask(DenseIndex.status).positions == 319
    missing = worker.ask(lambda index: index.missing_keys(1).positions.tolist())
    assert missing == [1, 2, 3, 4, *range(300, 310)]
    worker.begin("chat", [*(word(position) for position in range(200)), 1, 2, 3])
    assert worker.ask(DenseIndex.backlog) == [1, 2]
    assert worker.ask(lambda index: index.missing_keys(2).positions.tolist()) == [200, 201, 202]


def test_chats_in_turns_go_on_in_their_own_texts(worker: DenseWorker) -> None:
    record(worker, 300)
    record(worker, 100, owner="other")
    record(worker, 320, start=310)
    record(worker, 120, start=100, owner="other")
    assert worker.ask(DenseIndex.status).positions == 319 + 119
    matches = find(worker.memory, 115, k=2)
    assert min(matches.similarities) > 0.99
    assert matches.suffixes == [8, 8]
    assert sorted(matches.current) == [False, True]


def test_a_chat_of_an_earlier_session_is_not_encoded_again(tmp_path: Path) -> None:
    for start, stop in ((5, 300), (310, 330)):
        worker = DenseWorker(open_store(tmp_path), VOCABULARY)
        record(worker, stop, start=start)
        worker.close()
    store = open_store(tmp_path)
    assert store.missing_keys(2).tolist() == list(range(300, 310))
    store.close()


def test_what_belongs_to_no_chat_is_not_recorded(worker: DenseWorker) -> None:
    record(worker, 300)
    before = worker.ask(DenseIndex.status)
    worker.leave()
    worker.observe(300, *said(300, 310))
    assert worker.ask(DenseIndex.status) == before


def test_what_is_forgotten_is_found_no_more(tmp_path: Path, worker: DenseWorker) -> None:
    record(worker, 300)
    record(worker, 300, start=290, owner="other")
    worker.ask(lambda index: index.forget("chat"))
    assert not find(worker.memory, 77).similarities
    assert find(worker.memory, 292).similarities[0] > 0.99
    assert worker.ask(DenseIndex.status).keys == 10
    record(worker, 20)
    assert find(worker.memory, 15).similarities[0] > 0.99


def test_an_answer_is_never_waited_for(worker: DenseWorker) -> None:
    record(worker, 300)
    with worker.memory._lock:
        assert worker.memory.search(state_of(77), word(77), [], 3, 4) is None
    assert worker.memory.search(state_of(77), word(77), [], 3, 4) is not None


def test_a_failing_disk_loses_nothing(
    tmp_path: Path, worker: DenseWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worker, 300)

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "write", full)
        worker.observe(300, *said(300, 340))
        with pytest.raises(StoreError, match="full"):
            worker.ask(DenseIndex.flush)
        assert find(worker.memory, 320).similarities[0] > 0.99
    worker.ask(DenseIndex.flush)
    worker.close()
    store = open_store(tmp_path)
    assert list(store.tokens(1)) == [word(position) for position in range(340)]
    assert store.counts()[1] == 335
    store.close()


def test_keys_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(worker, 300)
    worker.close()
    store = open_store(tmp_path)
    with store.store.writing() as db:
        db.conn.execute("UPDATE keys SET codes = x'00' WHERE id = 3")
    broken = DenseWorker(store, VOCABULARY)
    with pytest.raises(StoreError, match="keys without positions"):
        broken.ask(DenseIndex.status)
    assert broken.memory.search(state_of(77), word(77), [], 3, 4) is None
    broken.observe(0, *said(0, 3))
    broken.close()


def test_a_closed_worker_refuses_and_lets_nobody_wait(tmp_path: Path) -> None:
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    worker.close()
    worker.observe(0, *said(0, 3))
    with pytest.raises(WorkerClosedError, match="closed"):
        worker.ask(DenseIndex.flush)


def test_closing_while_the_index_is_loaded_ends_the_load_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(first, 400)
    first.close()
    loading, load = threading.Event(), DenseMemory.load

    def endless(memory: DenseMemory, *arguments: Any) -> None:
        cancelled = arguments[-1]
        loading.set()
        while not cancelled():
            load(memory, *arguments)

    monkeypatch.setattr(DenseMemory, "load", endless)
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    assert loading.wait(TIMEOUT_S)
    worker.begin("other", [1, 2, 3])
    worker.observe(3, *said(3, 30))
    worker.close()
    assert not worker._thread.is_alive()
    assert worker.error is None
    store = open_store(tmp_path)
    assert list(store.tokens(2)) == [1, 2, 3, *said(3, 30)[0]]
    assert store.missing_keys(2).tolist() == [1, 2]
    store.close()


def test_a_cancelled_load_leaves_nothing_to_find(tmp_path: Path) -> None:
    worker = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(worker, 400)
    worker.close()
    store, memory = open_store(tmp_path), DenseMemory(VOCABULARY)
    for patience in range(2):
        answers = chain([False] * patience, repeat(True))
        memory.load(store, store.projection(), partial(next, answers))
        assert len(memory) == 0
        assert memory.search(state_of(77), word(77), [], 3, 4) is None
    memory.load(store, store.projection(), lambda: False)
    assert len(memory) == 395
    store.close()


def test_closing_does_not_wait_for_ever(
    tmp_path: Path, worker: DenseWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worker, 300)
    monkeypatch.setattr("datastores.dense.worker.CLOSE_TIMEOUT_S", 0.01)
    done = threading.Event()
    rewriting = worker.request(lambda index: done.wait(TIMEOUT_S))
    worker.close()
    assert not rewriting.done()
    done.set()
    assert rewriting.result(TIMEOUT_S)
    worker._thread.join(TIMEOUT_S)
    store = open_store(tmp_path)
    assert store.counts() == (299, 295)
    store.close()


def test_the_drafter_alone_does_not_import_faiss() -> None:
    code = "import sys, engines.drafters.dense; sys.exit('faiss' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_tokens_that_another_vocabulary_would_have_are_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    text = store.create_text("strange")
    worker = DenseWorker(store, VOCABULARY)
    record(worker, 300)
    worker.close()
    store = open_store(tmp_path)
    projection = store.projection()
    assert projection is not None
    keys = TextKeys(text, np.array([1, 2]), projection.encode(said(1, 3)[1]))
    store.write([TextTokens(text, 0, [1, 4_000_000_000, 2])], [keys])
    again = DenseWorker(store, VOCABULARY)
    again.ask(lambda index: None)
    assert len(again.memory) == 295 + 1
    again.close()
