"""Idle work on the model's thread, in short slices: a question waits for at most one slice.

It keeps that thread's priority, unlike the processes that embed, index and train: a thread of a
lower one would hold the model's lock for seconds beside other programs. So nothing may wait for it:
no slice begins while somebody waits for this process or any other (`app.foreground`). A slice that
reads a note (`app.runtime.idle_answerability`) can take seconds, and ends when somebody waits.

`IdleWork` is the work for one model: it tracks whether there is something to do, and pauses on
battery or when the user pauses it. `IdleQueue` schedules the slices, and switches to other work
when another model is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from app.machine import on_battery
from app.remaining_time import RemainingTime
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress

BATTERY_CHECK_S = 10.0
"""Seconds between two checks of the power supply."""
RETRY_S = 0.2
"""Seconds between two looks whether somebody still waits."""

Begin = Callable[[bool], "Generator[EncodingProgress | None]"]
"""Begins the work; the argument tells whether texts may have been added or removed."""
NotifyIdle = Callable[["EncodingProgress | None", SpecchatError | None], object]
"""Called with the progress to show, if any, and with errors."""


class IdleWork:
    """Work of one model. Everything but `wake` runs on the model's thread.

    Attributes:
        enabled: whether the user wants it.
        on_wake: called by `wake`, on any thread; set by the queue.
    """

    def __init__(self, begin: Begin, notify: NotifyIdle) -> None:
        self.enabled = True
        self.on_wake: Callable[[], object] = lambda: None
        self._left = RemainingTime()
        self._begin = begin
        self._notify = notify
        self._texts_changed = threading.Event()
        self._texts_changed.set()
        self._running: Generator[EncodingProgress | None] | None = None
        self._notified: EncodingProgress | SpecchatError | None = None
        self._checked = -BATTERY_CHECK_S
        self._on_battery = False

    def wake(self) -> None:
        """Look for work again, as texts may have been added or removed."""
        self._texts_changed.set()
        self.on_wake()

    def slice(self) -> bool:
        """Do one slice; whether there is more to do."""
        if not self.enabled or self._is_on_battery():
            self._report(None)
            return False
        if self._running is None:
            texts_changed = self._texts_changed.is_set()
            self._texts_changed.clear()
            self._running = self._begin(texts_changed)
        try:
            progress = next(self._running)
        except StopIteration:
            self._running = None
            self._report(None)
            return self._texts_changed.is_set()
        except SpecchatError as error:
            self._running = None
            self._report_error(error)
            return False
        if progress is not None:
            left = self._left.update(progress.done, progress.total, monotonic())
            progress = replace(progress, seconds_left=left)
        self._report(progress)
        return True

    def close(self) -> None:
        """Leave the rest to the next session."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _is_on_battery(self) -> bool:
        if monotonic() >= self._checked + BATTERY_CHECK_S:
            self._checked, self._on_battery = monotonic(), on_battery()
        return self._on_battery

    def _report(self, progress: EncodingProgress | None) -> None:
        """Notify of visible changes only: one percent more, or the end."""
        progress = progress if progress is not None and progress.noticed else None
        if _percent(progress) != _percent(self._notified):
            self._notified = progress
            self._notify(progress, None)

    def _report_error(self, error: SpecchatError) -> None:
        if str(error) != str(self._notified):
            self._notified = error
            self._notify(None, error)


def _percent(notified: EncodingProgress | SpecchatError | None) -> object:
    if notified is None or isinstance(notified, SpecchatError):
        return None
    return notified.imports, 100 * notified.done // max(1, notified.total)


class SlicedWork(Protocol):
    """Work that is done in slices, on the model's thread.

    Attributes:
        on_wake: called from any thread when there may be work again.
    """

    on_wake: Callable[[], object]

    def slice(self) -> bool:
        """Do one slice; returns whether there is more to do."""
        ...

    def close(self) -> None:
        """Do no further slice."""
        ...


class IdleQueue:
    """Queues the idle work of the current model behind everything else on its thread.

    Args:
        is_asked: whether somebody waits for this process or any other.
    """

    def __init__(self, executor: Executor, is_asked: Callable[[], bool]) -> None:
        self._executor = executor
        self._is_asked = is_asked
        self._lock = threading.Lock()
        self._works: Sequence[SlicedWork] = ()
        self._queued: Future[None] | None = None
        self._retry: threading.Timer | None = None
        self._closed = False

    def replace(self, works: Sequence[SlicedWork]) -> None:
        """Switch to the work of another model, the most urgent first. On the model's thread."""
        for work in self._works:
            work.on_wake = lambda: None
            work.close()
        self._works = works
        for work in works:
            work.on_wake = self.resume
        self.resume()

    def resume(self) -> None:
        """Queue a slice unless one is queued. On any thread."""
        with self._lock:
            if self._queued is None or self._queued.done():
                self._submit()

    def close(self) -> Future[None] | None:
        """Stop queueing; returns the slice that may still be queued or running."""
        with self._lock:
            self._closed = True
            if self._retry is not None:
                self._retry.cancel()
            return self._queued

    def _submit(self) -> None:
        if self._works and not self._closed:
            self._queued = self._executor.submit(self._slice)
            self._queued.add_done_callback(_report_defect)

    def _slice(self) -> None:
        if self._is_asked():
            self._resume_later()
        elif any(work.slice() for work in self._works):
            with self._lock:
                self._submit()

    def _resume_later(self) -> None:
        """Nobody tells when another process has answered."""
        with self._lock:
            if not self._closed:
                self._retry = threading.Timer(RETRY_S, self.resume)
                self._retry.daemon = True
                self._retry.start()


def _report_defect(done: Future[None]) -> None:
    """Report an exception in a slice, which nobody awaits."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        traceback = error.__traceback__
        threading.excepthook(threading.ExceptHookArgs((type(error), error, traceback, None)))
