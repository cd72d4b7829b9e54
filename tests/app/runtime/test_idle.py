"""Idle work: told when it can be noticed, begun again when roused, spared on a battery."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from app.runtime import idle
from app.runtime.idle import IdleWork
from app.runtime.idle_encoding import EncodingProgress
from datastores.errors import SpecchatError, StoreError

Told = list[tuple[EncodingProgress | None, SpecchatError | None]]


class Book:
    """Work of so many pages, each a thousandth."""

    def __init__(self, pages: int, *, noticed: bool = True) -> None:
        self.pages = pages
        self.noticed = noticed
        self.begun: list[bool] = []
        self.fails: SpecchatError | None = None
        self.told: Told = []
        self.work = IdleWork(self._begin, lambda *told: self.told.append(told))

    def _begin(self, texts: bool) -> Generator[EncodingProgress | None]:
        self.begun.append(texts)
        if self.fails is not None:
            raise self.fails
        yield None
        for page in range(self.pages):
            yield EncodingProgress(page, 1000, True, False, self.noticed)


@pytest.fixture(autouse=True)
def on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle.on_battery", lambda: False)


def test_it_goes_on_to_the_end_and_tells_each_hundredth() -> None:
    book = Book(40)
    assert sum(iter(book.work.slice, False)) == 1 + 40
    shares = [reading.done if reading else None for reading, _ in book.told]
    assert shares == [0, 10, 20, 30, None]


def test_what_nobody_would_notice_is_not_told() -> None:
    book = Book(40, noticed=False)
    while book.work.slice():
        pass
    assert book.told == []


def test_texts_are_looked_for_at_first_and_when_roused() -> None:
    book, calls = Book(1), list[str]()
    book.work.roused = lambda: calls.append("roused")
    for _ in range(2):
        while book.work.slice():
            pass
    assert book.begun == [True, False]
    book.work.rouse()
    assert calls == ["roused"]
    assert sum(iter(book.work.slice, False)) == 2
    assert book.begun == [True, False, True]


def test_roused_while_it_works_it_begins_again() -> None:
    book = Book(3)
    assert book.work.slice()
    book.work.rouse()
    while book.work.slice():
        pass
    assert book.begun == [True, True]


def test_a_failure_is_told_once_and_tried_again() -> None:
    book = Book(1)
    book.fails = StoreError("the disk is full")
    assert [book.work.slice() for _ in range(3)] == [False] * 3
    assert book.told == [(None, book.fails)]
    book.fails = None
    assert book.work.slice()


def test_a_battery_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtime.idle.on_battery", lambda: True)
    monkeypatch.setattr(idle, "LOOK", 0.0)
    book = Book(3)
    assert not book.work.slice()
    assert book.begun == []
    monkeypatch.setattr("app.runtime.idle.on_battery", lambda: False)
    assert book.work.slice()
