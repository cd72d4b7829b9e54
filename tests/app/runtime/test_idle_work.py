"""Idle work: reported if noticeable, begun again on waking, not done on battery."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from app.runtime.idle_encoding import EncodingProgress
from app.runtime.idle_work import IdleWork
from datastores.errors import SpecchatError, StoreError

Notified = list[tuple[EncodingProgress | None, SpecchatError | None]]


class Book:
    """Work of so many pages, each a thousandth."""

    def __init__(self, pages: int, *, noticed: bool = True) -> None:
        self.pages = pages
        self.noticed = noticed
        self.begun: list[bool] = []
        self.fails: SpecchatError | None = None
        self.notified: Notified = []
        self.work = IdleWork(self._begin, lambda *change: self.notified.append(change))

    def _begin(self, texts: bool) -> Generator[EncodingProgress | None]:
        self.begun.append(texts)
        if self.fails is not None:
            raise self.fails
        yield None
        for page in range(self.pages):
            yield EncodingProgress(page, 1000, True, self.noticed)


@pytest.fixture(autouse=True)
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: False)


def test_it_runs_to_the_end_and_reports_each_percent() -> None:
    book = Book(40)
    assert sum(iter(book.work.slice, False)) == 1 + 40
    done = [progress.done if progress else None for progress, _ in book.notified]
    assert done == [0, 10, 20, 30, None]


def test_unnoticeable_work_is_not_reported() -> None:
    book = Book(40, noticed=False)
    while book.work.slice():
        pass
    assert book.notified == []


def test_texts_are_compared_at_first_and_on_waking() -> None:
    book, calls = Book(1), list[str]()
    book.work.on_wake = lambda: calls.append("woken")
    for _ in range(2):
        while book.work.slice():
            pass
    assert book.begun == [True, False]
    book.work.wake()
    assert calls == ["woken"]
    assert sum(iter(book.work.slice, False)) == 2
    assert book.begun == [True, False, True]


def test_woken_during_work_it_begins_again() -> None:
    book = Book(3)
    assert book.work.slice()
    book.work.wake()
    while book.work.slice():
        pass
    assert book.begun == [True, True]


def test_an_error_is_reported_once_and_the_work_retried() -> None:
    book = Book(1)
    book.fails = StoreError("the disk is full")
    assert [book.work.slice() for _ in range(3)] == [False] * 3
    assert book.notified == [(None, book.fails)]
    book.fails = None
    assert book.work.slice()


def test_nothing_is_done_on_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: True)
    monkeypatch.setattr("app.runtime.idle_work.BATTERY_CHECK_S", 0.0)
    book = Book(3)
    assert not book.work.slice()
    assert book.begun == []
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: False)
    assert book.work.slice()


def test_it_is_paused_and_goes_on_where_it_was() -> None:
    book = Book(40)
    for _ in range(25):
        assert book.work.slice()
    book.work.enabled = False
    assert not book.work.slice()
    assert book.notified[-1] == (None, None), "nothing is shown of it"
    book.work.enabled = True
    while book.work.slice():
        pass
    assert book.begun == [True]
    assert [progress.done for progress, _ in book.notified if progress] == [0, 10, 20, 24, 30]


def test_the_time_left_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("app.runtime.idle_work.monotonic", lambda: float(next(clock)))
    book = Book(40)
    while book.work.slice():
        pass
    lefts = [progress.seconds_left for progress, _ in book.notified if progress]
    assert lefts[0] is None
    assert lefts[-1] is not None
    assert 970 * 2 <= lefts[-1] <= 970 * 3, "two or three looks at the clock for each page"
