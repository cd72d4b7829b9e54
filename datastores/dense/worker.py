"""The one thread that adds to a dense index; everyone else hands it work and goes on.

The decode thread pays for a list entry. It does not even wake the thread: that one looks by itself
every `PAUSE` seconds while answers are written, since two threads that take turns at every step
cost each other more time than the work takes. Reading the index at start-up, encoding, writing and
fitting happen here. A failing disk costs no draft: what could not be written is tried again.

Owns the thread and the rhythm of writing. Refuses to know what is done
(`datastores.dense.recorder`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from datastores.dense.memory import DenseMemory
from datastores.dense.projection import Floats
from datastores.dense.recorder import DenseRecorder
from datastores.dense.store import DenseStore
from datastores.errors import SpecchatError, StoreError

INTERVAL = 0.3
"""Seconds from one write to the next: a killed process loses less than a second."""
PAUSE = 0.05
"""Seconds from one look for new states to the next: the delay after which they can be found. At
ten milliseconds a step it shortens drafts of this index alone by 5 %, and by 1 % beside prompt
lookup."""
QUIET = 1.0
"""Seconds without work after which the thread sleeps until it is woken."""

T = TypeVar("T")


class _Said(NamedTuple):
    """Part of an answer: tokens from a position on, and the states that produced them."""

    position: int
    tokens: Sequence[int]
    states: Floats


class _Job(NamedTuple):
    """Something to do, and who waits for it."""

    work: Callable[[DenseRecorder], object]
    answer: Future[Any] | None = None


class DenseWorker:
    """Keeps one model's dense index on a thread of its own.

    Attributes:
        memory: what drafters ask; it fills while the thread reads the disk.
        trouble: why the index could not be read, or not be written lately; None while all is well.
    """

    def __init__(self, store: DenseStore, vocabulary: int) -> None:
        """Begin to read `store`, which is the thread's own from now on.

        Args:
            vocabulary: number of token ids.
        """
        self.memory = DenseMemory(vocabulary)
        self.trouble: SpecchatError | None = None
        self._store = store
        self._inbox: deque[_Said | _Job] = deque()
        self._wake = threading.Event()
        self._asleep = False
        self._closing = False
        self._gate = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="dense-keeper", daemon=True)
        self._thread.start()

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, which the caller may go on changing."""
        words = list(tokens)
        self._submit(_Job(lambda book: book.begin(source, words)))

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer and the states that produced them; see `DenseRecorder.observe`."""
        if not self._ended:
            self._inbox.append(_Said(position, tokens, states))
        if self._asleep:
            self._wake.set()

    def leave(self) -> None:
        """Nothing is recorded until the next `begin`."""
        self._submit(_Job(DenseRecorder.leave))

    def encoded(self, document: int, positions: NDArray[np.int64], states: Floats) -> None:
        """States of the backlog; see `DenseRecorder.encoded`."""
        self._submit(_Job(lambda book: book.encoded(document, positions, states)))

    def ask(self, work: Callable[[DenseRecorder], T]) -> T:
        """Have `work` done on the thread and wait for what it returns or raises.

        Raises:
            StoreError: the disk failed, or the thread has ended.
        """
        return self.request(work).result()

    def request(self, work: Callable[[DenseRecorder], T]) -> Future[T]:
        """As `ask`, for those who must not wait: what it will return or raise."""
        answer: Future[T] = Future()
        self._submit(_Job(work, answer))
        return answer

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _submit(self, job: _Job) -> None:
        with self._gate:
            if not self._ended:
                self._inbox.append(job)
                self._wake.set()
            elif job.answer:
                job.answer.set_exception(self.trouble or StoreError("the dense index is closed"))

    def _run(self) -> None:
        try:
            book = DenseRecorder(self._store, self.memory)
            try:
                self._serve(book)
            finally:
                book.close()
        except SpecchatError as error:
            self.trouble = error
        finally:
            self._end()

    def _serve(self, book: DenseRecorder) -> None:
        """Work off the inbox again and again, and write every `INTERVAL`, until closed."""
        worked = written = monotonic()
        while not self._closing or self._inbox:
            now = monotonic()
            if self._inbox:
                self._work_off(book)
                worked = now
            if book.dirty and now >= written + INTERVAL:
                self._write(book)
                written = now
            if not self._closing:
                self._rest(book.dirty or now < worked + QUIET)

    def _rest(self, briefly: bool) -> None:
        """Wait for work: for `PAUSE`, or until there is some."""
        self._asleep = not briefly
        if briefly or not self._inbox:
            self._wake.wait(PAUSE if briefly else None)
        self._asleep = False
        self._wake.clear()

    def _work_off(self, book: DenseRecorder) -> None:
        """Do what lies in the inbox, in order; parts of one answer together."""
        said: list[_Said] = []
        for _ in range(len(self._inbox)):
            item = self._inbox.popleft()
            if isinstance(item, _Said):
                said.append(item)
            else:
                self._record(said, book)
                said = []
                self._do(item, book)
        self._record(said, book)

    def _record(self, said: Sequence[_Said], book: DenseRecorder) -> None:
        if said:
            tokens = [token for part in said for token in part.tokens]
            states = np.concatenate([part.states for part in said])
            self._do(_Job(lambda book: book.observe(said[0].position, tokens, states)), book)

    def _write(self, book: DenseRecorder) -> None:
        self._do(_Job(DenseRecorder.flush), book)

    def _do(self, job: _Job, book: DenseRecorder) -> None:
        try:
            result = job.work(book)
        except SpecchatError as error:
            if job.answer:
                job.answer.set_exception(error)
            else:
                self.trouble = error
        else:
            if not book.dirty:
                self.trouble = None
            if job.answer:
                job.answer.set_result(result)
        finally:
            if job.answer:
                job.answer.cancel()  # only after a mistake of ours, which ends the thread

    def _end(self) -> None:
        """Take no more work, and tell whoever still waits for some."""
        with self._gate:
            self._ended = True
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, _Job) and item.answer:
                item.answer.set_exception(self.trouble or StoreError("the dense index is closed"))
