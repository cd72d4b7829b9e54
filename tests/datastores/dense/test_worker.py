"""Keeping a dense index: what is said can be found at once, and again after any death."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from datastores.dense.memory import GAP, DenseMemory, Matches
from datastores.dense.projection import Floats
from datastores.dense.recorder import FIRST, DenseRecorder
from datastores.dense.rows import Encoded, Written
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from datastores.errors import StoreError

WIDTH, RANK, VOCABULARY = 96, 40, 50


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
def keeper(tmp_path: Path) -> Iterator[DenseWorker]:
    opened = DenseWorker(open_store(tmp_path), VOCABULARY)
    yield opened
    opened.close()
    assert opened.trouble is None


def tell(keeper: DenseWorker, stop: int, start: int = 5, source: str = "chat") -> None:
    """Have an answer from `start` to `stop` recorded, five tokens a step."""
    keeper.begin(source, [word(position) for position in range(start)])
    for first in range(start, stop, 5):
        keeper.observe(first, *said(first, min(stop, first + 5)))
    keeper.ask(DenseRecorder.flush)


def find(memory: DenseMemory, position: int, k: int = 3) -> Matches:
    before = [word(p) for p in range(position)]
    recall = memory.recall(state_of(position), word(position), before, k, 4)
    assert recall is not None
    return recall


def test_nothing_is_found_before_the_first_fit_and_all_after_it(keeper: DenseWorker) -> None:
    tell(keeper, FIRST)
    assert keeper.memory.recall(state_of(9), word(9), [], 3, 4) is None
    status = keeper.ask(DenseRecorder.status)
    assert (status.states, status.keys, status.positions) == (FIRST - 5, 0, FIRST - 1)
    keeper.observe(FIRST, *said(FIRST, FIRST + 10))
    assert keeper.ask(DenseRecorder.status).keys == FIRST + 5
    for position in (5, 77, FIRST):
        recall = find(keeper.memory, position)
        assert recall.similarities[0] > 0.99
        assert recall.continuations[0] == [word(position + n) for n in range(1, 5)]
        assert recall.matches[0] == min(8, position)


def test_what_was_found_live_is_found_after_a_restart(tmp_path: Path) -> None:
    live = DenseWorker(open_store(tmp_path), VOCABULARY)
    tell(live, 400)
    tell(live, 300, start=40, source="other")
    expected = [find(live.memory, position) for position in range(50, 290, 7)]
    live.close()
    again = DenseWorker(open_store(tmp_path), VOCABULARY)
    again.ask(lambda book: None)
    for position, recall in zip(range(50, 290, 7), expected, strict=True):
        found = find(again.memory, position)
        assert found.similarities == recall.similarities
        assert found.continuations == recall.continuations
        assert any(recall.present)
        assert not any(found.present)
    again.close()


def test_a_continuation_ends_with_its_document(keeper: DenseWorker) -> None:
    tell(keeper, 400)
    tell(keeper, 20, source="other")
    recall = find(keeper.memory, 398)
    assert recall.continuations[0][:2] == [word(399), GAP]
    only = find(keeper.memory, 399)
    assert max(only.similarities, default=0.0) <= 0.99, "an end has no continuation to lend"


def test_a_chat_goes_on_in_its_document_and_a_new_version_of_it_shares_the_start(
    keeper: DenseWorker,
) -> None:
    tell(keeper, 300)
    keeper.begin("chat", [word(position) for position in range(310)])
    keeper.observe(310, *said(310, 320))
    assert keeper.ask(DenseRecorder.status).positions == 319
    missing = keeper.ask(lambda book: book.wanting(1).positions.tolist())
    assert missing == [1, 2, 3, 4, *range(300, 310)]
    keeper.begin("chat", [*(word(position) for position in range(200)), 1, 2, 3])
    assert keeper.ask(DenseRecorder.backlog) == [1, 2]
    assert keeper.ask(lambda book: book.wanting(2).positions.tolist()) == [200, 201, 202]


def test_chats_in_turns_go_on_in_their_own_documents(keeper: DenseWorker) -> None:
    tell(keeper, 300)
    tell(keeper, 100, source="other")
    tell(keeper, 320, start=310)
    tell(keeper, 120, start=100, source="other")
    assert keeper.ask(DenseRecorder.status).positions == 319 + 119
    recall = find(keeper.memory, 115, k=2)
    assert min(recall.similarities) > 0.99
    assert recall.matches == [8, 8]
    assert sorted(recall.present) == [False, True]


def test_a_chat_of_an_earlier_session_is_not_encoded_again(tmp_path: Path) -> None:
    for start, stop in ((5, 300), (310, 330)):
        keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
        tell(keeper, stop, start=start)
        keeper.close()
    store = open_store(tmp_path)
    (generation,) = store.generations.all()
    assert store.missing(2, generation).tolist() == list(range(300, 310))
    store.close()


def test_what_belongs_to_no_chat_is_not_recorded(keeper: DenseWorker) -> None:
    tell(keeper, 300)
    before = keeper.ask(DenseRecorder.status)
    keeper.leave()
    keeper.observe(300, *said(300, 310))
    assert keeper.ask(DenseRecorder.status) == before


def test_what_is_forgotten_is_found_no_more(tmp_path: Path, keeper: DenseWorker) -> None:
    tell(keeper, 300)
    tell(keeper, 300, start=290, source="other")
    keeper.ask(lambda book: book.forget("chat"))
    assert not find(keeper.memory, 77).similarities
    assert find(keeper.memory, 292).similarities[0] > 0.99
    assert keeper.ask(DenseRecorder.status).keys == 10
    tell(keeper, 20)
    assert find(keeper.memory, 15).similarities[0] > 0.99


def test_an_answer_is_never_waited_for(keeper: DenseWorker) -> None:
    tell(keeper, 300)
    with keeper.memory._lock:
        assert keeper.memory.recall(state_of(77), word(77), [], 3, 4) is None
    assert keeper.memory.recall(state_of(77), word(77), [], 3, 4) is not None


def test_a_new_generation_serves_only_when_it_lacks_nothing(keeper: DenseWorker) -> None:
    tell(keeper, 300)
    assert not keeper.ask(DenseRecorder.refit), "too little has come since the last fit"
    keeper.begin("drift", [0])
    keeper.observe(1, *said(1, 1200, seed=1))
    assert keeper.ask(DenseRecorder.refit)
    status = keeper.ask(DenseRecorder.status)
    assert (status.rebuilt, status.keys) == (0, 295 + 1199)
    assert not keeper.ask(DenseRecorder.promote)
    for document, seed in ((1, 0), (2, 1)):
        wanting = keeper.ask(partial(DenseRecorder.wanting, document=document))
        states = np.array([state_of(int(position), seed) for position in wanting.positions])
        assert find(keeper.memory, 77).similarities[0] > 0.99, "the old one serves"
        keeper.encoded(document, wanting.positions, states)
    assert keeper.ask(DenseRecorder.promote)
    status = keeper.ask(DenseRecorder.status)
    assert (status.rebuilt, status.keys) == (None, 299 + 1199)
    assert find(keeper.memory, 77).similarities[0] > 0.99
    assert not keeper.ask(DenseRecorder.refit), "nothing has been outgrown again"


def test_a_failing_disk_loses_nothing(
    tmp_path: Path, keeper: DenseWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(keeper, 300)

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "write", full)
        keeper.observe(300, *said(300, 340))
        with pytest.raises(StoreError, match="full"):
            keeper.ask(DenseRecorder.flush)
        assert find(keeper.memory, 320).similarities[0] > 0.99
    keeper.ask(DenseRecorder.flush)
    keeper.close()
    store = open_store(tmp_path)
    assert list(store.tokens(1)) == [word(position) for position in range(340)]
    assert store.counts(store.generations.all()[0])[1] == 335
    store.close()


def test_keys_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
    tell(keeper, 300)
    keeper.close()
    store = open_store(tmp_path)
    with store.store.writing() as db:
        db.conn.execute("UPDATE keys SET codes = x'00' WHERE id = 3")
    broken = DenseWorker(store, VOCABULARY)
    with pytest.raises(StoreError, match="keys without places"):
        broken.ask(DenseRecorder.status)
    assert broken.memory.recall(state_of(77), word(77), [], 3, 4) is None
    broken.observe(0, *said(0, 3))
    broken.close()


def test_a_closed_keeper_refuses_and_lets_nobody_wait(tmp_path: Path) -> None:
    keeper = DenseWorker(open_store(tmp_path), VOCABULARY)
    keeper.close()
    keeper.observe(0, *said(0, 3))
    with pytest.raises(StoreError, match="closed"):
        keeper.ask(DenseRecorder.flush)


def test_a_growing_index_moves_to_faiss_unnoticed(
    keeper: DenseWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastores.dense.memory.FEW", 320)
    tell(keeper, 300)
    before = find(keeper.memory, 77)
    tell(keeper, 500, start=300)
    assert type(keeper.memory._loaded.index).__name__ == "FaissIndex"  # type: ignore[union-attr]
    after = find(keeper.memory, 77)
    assert after.similarities[0] == pytest.approx(before.similarities[0], abs=1e-3)
    assert after.continuations[0] == before.continuations[0]
    assert find(keeper.memory, 400).similarities[0] > 0.99


def test_a_small_index_does_not_load_faiss() -> None:
    code = "import sys, engines.drafters.dense; sys.exit('faiss' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_tokens_that_another_vocabulary_would_have_are_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    document = store.create_document("strange")
    keeper = DenseWorker(store, VOCABULARY)
    tell(keeper, 300)
    keeper.close()
    store = open_store(tmp_path)
    generation = store.generations.all()[0]
    codes = generation.projection.encode(said(1, 3)[1])
    keys = Encoded(document, generation.id, np.array([1, 2]), codes)
    store.write([Written(document, 0, [1, 4_000_000_000, 2])], [keys])
    again = DenseWorker(store, VOCABULARY)
    again.ask(lambda book: None)
    assert len(again.memory) == 295 + 1
    again.close()
