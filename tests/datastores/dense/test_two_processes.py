"""Two processes at one dense index: what one deletes or begins, the other takes notice of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.dense.index import DenseIndex
from datastores.dense.worker import DenseWorker
from tests.datastores.dense.test_worker import (
    SAMPLE,
    VOCABULARY,
    find,
    open_store,
    record,
    said,
    state_of,
    word,
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[DenseWorker, DenseWorker]]:
    opened = [DenseWorker(open_store(tmp_path), VOCABULARY) for _ in range(2)]
    yield opened[0], opened[1]
    for worker in opened:
        worker.close()
        assert worker.error is None


def test_what_another_process_forgets_is_not_drafted_in_the_next_answer(tmp_path: Path) -> None:
    first = DenseWorker(open_store(tmp_path), VOCABULARY)
    record(first, SAMPLE + 100)
    second = DenseWorker(open_store(tmp_path), VOCABULARY)
    assert second.ask(lambda index: len(find(second.memory, 50).similarities)) > 0
    first.ask(lambda index: index.forget("chat"))
    second.leave()
    second.ask(lambda index: None)
    assert find(second.memory, 50).similarities == []
    for worker in (first, second):
        worker.close()


def test_an_answer_in_a_chat_that_another_process_forgets_is_recorded_no_further(
    two: tuple[DenseWorker, DenseWorker],
) -> None:
    here, there = two
    record(here, SAMPLE + 100)
    there.ask(lambda index: index.forget("chat"))
    for worker in two:
        worker.ask(DenseIndex.flush)
    here.observe(SAMPLE + 100, *said(SAMPLE + 100, SAMPLE + 120))
    here.ask(DenseIndex.flush)
    assert here.memory.search(state_of(SAMPLE + 110), word(SAMPLE + 110), [], 3, 4) is not None
    assert find(here.memory, SAMPLE + 110).similarities == []
    assert here.ask(DenseIndex.status).positions == 0


def test_the_first_projection_of_another_process_serves_here_too(
    two: tuple[DenseWorker, DenseWorker],
) -> None:
    here, there = two
    record(here, 100, owner="mine")
    record(there, SAMPLE + 100, owner="theirs")
    here.ask(DenseIndex.flush)
    assert find(here.memory, 50).similarities[0] > 0.99
    record(here, 150, owner="more")
    assert find(here.memory, 140).similarities[0] > 0.99
