"""Idle work on the model's thread: a slice at a time, behind whatever is asked for meanwhile.

Owns when a slice is queued, and what the line at the top says of it. What is done is
`app.runtime.idle`'s business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from app.interface.panel.phrases import percent
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.runtime.idle import IdleWork
    from app.runtime.idle_encoding import EncodingProgress


@dataclass
class IdleChanged(Message):
    """Idle work goes on, has nothing more to tell (None), or failed."""

    reading: EncodingProgress | None
    trouble: SpecchatError | None


class Idling:
    """Has the idle work of one model done, and of the next one once that is loaded.

    Args:
        thread: the model's.
        asked: whether a person waits for an answer.
    """

    def __init__(self, thread: Executor, asked: Callable[[], bool]) -> None:
        self._thread = thread
        self._asked = asked
        self._gate = threading.Lock()
        self._work: IdleWork | None = None
        self._queued: Future[None] | None = None
        self._ended = False

    def take(self, work: IdleWork | None) -> None:
        """On the model's thread: turn to the work of another model, or of none."""
        if self._work is not None:
            self._work.roused = lambda: None
            self._work.close()
        self._work = work
        if work is not None:
            work.roused = self.go_on
            self.go_on()

    def go_on(self) -> None:
        """Queue a slice, unless one is queued. On any thread."""
        with self._gate:
            if self._queued is None or self._queued.done():
                self._queue()

    def end(self) -> Future[None] | None:
        """Queue no more; the slice that may be at work still."""
        with self._gate:
            self._ended = True
            return self._queued

    def _queue(self) -> None:
        if self._work is not None and not self._ended:
            self._queued = self._thread.submit(self._slice)
            self._queued.add_done_callback(_report)

    def _slice(self) -> None:
        if self._work is not None and not self._asked() and self._work.slice():
            with self._gate:
                self._queue()


def _report(done: Future[None]) -> None:
    """Nobody awaits a slice: a mistake of ours in it must not go unheard."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        traceback = error.__traceback__
        threading.excepthook(threading.ExceptHookArgs((type(error), error, traceback, None)))


def note(reading: EncodingProgress | None) -> str:
    """What the line at the top says; empty while nothing is worth saying."""
    if reading is None:
        return ""
    what = "rereading" if reading.renewing else "reading imports" if reading.imports else "reading"
    return f"{what} {percent(reading.done / max(1, reading.total))}"


def remembered(engine: Engine | None) -> int | None:
    """States that can be drafted from; None where none are kept."""
    dense = engine.stores.dense if engine is not None else None
    return len(dense.memory) if dense is not None else None
