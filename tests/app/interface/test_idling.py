"""Idle work gives way to whatever is asked, at once."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.runtime.idle import IdleWork
from app.runtime.idle_encoding import EncodingProgress
from app.runtime.idle_queue import Idling, note

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle.on_battery", lambda: False)


class Endless:
    """Work without an end, one turn of the gate a slice."""

    def __init__(self) -> None:
        self.slices = 0
        self.many = threading.Event()
        self.work = IdleWork(self._begin, lambda reading, trouble: None)

    def _begin(self, _texts: bool) -> Generator[EncodingProgress | None]:
        while True:
            self.slices += 1
            if self.slices % 50 == 0:
                self.many.set()
            yield None


def test_a_question_waits_for_one_slice_and_the_work_for_the_answer() -> None:
    asked = threading.Event()
    endless = Endless()
    with ThreadPoolExecutor(1) as thread:
        idling = Idling(thread, asked.is_set)
        thread.submit(idling.take, endless.work).result(PATIENCE)
        assert endless.many.wait(PATIENCE)
        before = endless.slices
        asked.set()
        answered = thread.submit(lambda: endless.slices)
        assert answered.result(PATIENCE) - before <= 50
        stood = thread.submit(lambda: endless.slices).result(PATIENCE)
        assert thread.submit(lambda: endless.slices).result(PATIENCE) == stood
        asked.clear()
        endless.many.clear()
        idling.go_on()
        assert endless.many.wait(PATIENCE), "after the answer it goes on"
        idling.end()


def test_after_the_end_nothing_is_queued() -> None:
    endless = Endless()
    thread = ThreadPoolExecutor(1)
    idling = Idling(thread, lambda: False)
    thread.submit(idling.take, endless.work).result(PATIENCE)
    idling.end()
    thread.shutdown(wait=True)
    slices = endless.slices
    endless.work.rouse()
    idling.go_on()
    assert endless.slices == slices


def test_another_models_work_takes_the_place() -> None:
    first, second = Endless(), Endless()
    with ThreadPoolExecutor(1) as thread:
        idling = Idling(thread, lambda: False)
        thread.submit(idling.take, first.work).result(PATIENCE)
        assert first.many.wait(PATIENCE)
        thread.submit(idling.take, second.work).result(PATIENCE)
        stood = thread.submit(lambda: first.slices).result(PATIENCE)
        assert second.many.wait(PATIENCE)
        assert first.slices == stood
        idling.end()


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (None, ""),
        (EncodingProgress(12, 100, True, False, True), "reading imports 12%"),
        (EncodingProgress(12, 100, False, False, True), "reading 12%"),
        (EncodingProgress(12, 100, True, True, True), "rereading 12%"),
    ],
)
def test_what_the_line_at_the_top_says(reading: EncodingProgress | None, words: str) -> None:
    assert note(reading) == words
