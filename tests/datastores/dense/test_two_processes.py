"""Two processes at one dense index: what one deletes or begins, the other takes notice of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.dense.recorder import FIRST, DenseRecorder
from datastores.dense.worker import DenseWorker
from tests.datastores.dense.test_worker import (
    VOCABULARY,
    find,
    open_store,
    said,
    state_of,
    tell,
    word,
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[DenseWorker, DenseWorker]]:
    opened = [DenseWorker(open_store(tmp_path), VOCABULARY) for _ in range(2)]
    yield opened[0], opened[1]
    for keeper in opened:
        keeper.close()
        assert keeper.trouble is None


def test_what_another_process_forgets_is_not_drafted_in_the_next_answer(tmp_path: Path) -> None:
    first = DenseWorker(open_store(tmp_path), VOCABULARY)
    tell(first, FIRST + 100)
    second = DenseWorker(open_store(tmp_path), VOCABULARY)
    assert second.ask(lambda book: len(find(second.memory, 50).similarities)) > 0
    first.ask(lambda book: book.forget("chat"))
    second.leave()
    second.ask(lambda book: None)
    assert find(second.memory, 50).similarities == []
    for keeper in (first, second):
        keeper.close()


def test_an_answer_in_a_chat_that_another_process_forgets_is_recorded_no_further(
    two: tuple[DenseWorker, DenseWorker],
) -> None:
    here, there = two
    tell(here, FIRST + 100)
    there.ask(lambda book: book.forget("chat"))
    for keeper in two:
        keeper.ask(DenseRecorder.flush)
    here.observe(FIRST + 100, *said(FIRST + 100, FIRST + 120))
    here.ask(DenseRecorder.flush)
    assert here.memory.recall(state_of(FIRST + 110), word(FIRST + 110), [], 3, 4) is not None
    assert find(here.memory, FIRST + 110).similarities == []
    assert here.ask(DenseRecorder.status).positions == 0


def test_the_first_projection_of_another_process_serves_here_too(
    two: tuple[DenseWorker, DenseWorker],
) -> None:
    here, there = two
    tell(here, 100, source="mine")
    tell(there, FIRST + 100, source="theirs")
    here.ask(DenseRecorder.flush)
    assert find(here.memory, 50).similarities[0] > 0.99
    tell(here, 150, source="more")
    assert find(here.memory, 140).similarities[0] > 0.99
