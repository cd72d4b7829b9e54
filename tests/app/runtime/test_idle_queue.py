"""Idle work yields to a question after one slice at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from app.runtime.idle_encoding import EncodingProgress
from app.runtime.idle_work import IdleQueue, IdleWork
from tests.waiting import TIMEOUT_S


@pytest.fixture(autouse=True)
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: False)


class Endless:
    """Work without an end; counts its slices, and calls `during` in each."""

    def __init__(self) -> None:
        self.slices = 0
        self.many = threading.Event()
        self.during: Callable[[], object] = lambda: None
        self.work = IdleWork(self._begin, lambda progress, error: None)

    def _begin(self, _texts: bool) -> Generator[EncodingProgress | None]:
        while True:
            self.slices += 1
            if self.slices % 50 == 0:
                self.many.set()
            self.during()
            yield None


def test_a_question_waits_for_one_slice_and_the_work_for_the_answer() -> None:
    asked, answers = threading.Event(), SimpleQueue[Future[int]]()
    endless = Endless()
    with ThreadPoolExecutor(1) as thread:
        queue = IdleQueue(thread, asked.is_set)

        def ask() -> None:
            if endless.slices == 60:
                asked.set()
                answers.put(thread.submit(lambda: endless.slices))

        endless.during = ask
        thread.submit(queue.replace, (endless.work,)).result(TIMEOUT_S)
        assert answers.get(timeout=TIMEOUT_S).result(TIMEOUT_S) == 60
        for _ in range(2):
            assert thread.submit(lambda: endless.slices).result(TIMEOUT_S) == 60
        asked.clear()
        endless.many.clear()
        queue.resume()
        assert endless.many.wait(TIMEOUT_S), "it resumes after the answer"
        queue.close()


def test_it_looks_again_whether_somebody_waits_for_another_process() -> None:
    asked = threading.Event()
    asked.set()
    endless = Endless()
    with ThreadPoolExecutor(1) as thread:
        queue = IdleQueue(thread, asked.is_set)
        thread.submit(queue.replace, (endless.work,)).result(TIMEOUT_S)
        for _ in range(3):
            queue.resume()
            thread.submit(lambda: None).result(TIMEOUT_S)
        assert endless.slices == 0
        asked.clear()
        assert endless.many.wait(TIMEOUT_S), "nobody resumes it"
        queue.close()


def test_nothing_is_queued_after_closing() -> None:
    endless = Endless()
    thread = ThreadPoolExecutor(1)
    queue = IdleQueue(thread, lambda: False)
    thread.submit(queue.replace, (endless.work,)).result(TIMEOUT_S)
    queue.close()
    thread.shutdown(wait=True)
    slices = endless.slices
    endless.work.wake()
    queue.resume()
    assert endless.slices == slices


def test_work_of_another_model_replaces_it() -> None:
    first, second = Endless(), Endless()
    with ThreadPoolExecutor(1) as thread:
        queue = IdleQueue(thread, lambda: False)
        thread.submit(queue.replace, (first.work,)).result(TIMEOUT_S)
        assert first.many.wait(TIMEOUT_S)
        thread.submit(queue.replace, (second.work,)).result(TIMEOUT_S)
        stood = thread.submit(lambda: first.slices).result(TIMEOUT_S)
        assert second.many.wait(TIMEOUT_S)
        assert first.slices == stood
        queue.close()
