"""The one thread that adds to a dense index; everyone else hands it work and goes on.

The decode thread pays for a queue entry. Reading the index at start-up, encoding, writing and
fitting happen here. A failing disk costs no draft: what could not be written is tried again.

Owns the thread and the rhythm of writing. Refuses to know what is done (`datastores.dense_book`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from datastores.dense import DenseStore
from datastores.dense_book import DenseBook
from datastores.dense_memory import DenseMemory
from datastores.dense_moments import Floats
from datastores.errors import SpecchatError, StoreError

INTERVAL = 0.3
"""Seconds from one write to the next: a killed process loses less than a second."""

T = TypeVar("T")


class _Job(NamedTuple):
    """Something to do, and who waits for it."""

    work: Callable[[DenseBook], object]
    answer: Future[Any] | None


class DenseKeeper:
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
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="dense-keeper", daemon=True)
        self._thread.start()

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, which the caller may go on changing."""
        words = list(tokens)
        self._submit(lambda book: book.begin(source, words))

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer and the states that produced them; see `DenseBook.observe`."""
        self._submit(lambda book: book.observe(position, tokens, states))

    def leave(self) -> None:
        """Nothing is recorded until the next `begin`."""
        self._submit(DenseBook.leave)

    def encoded(self, document: int, positions: NDArray[np.int64], states: Floats) -> None:
        """States of the backlog; see `DenseBook.encoded`."""
        self._submit(lambda book: book.encoded(document, positions, states))

    def ask(self, work: Callable[[DenseBook], T]) -> T:
        """Have `work` done on the thread and wait for what it returns or raises.

        Raises:
            StoreError: the disk failed, or the thread has ended.
        """
        answer: Future[T] = Future()
        self._submit(work, answer)
        return answer.result()

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _submit(self, work: Callable[[DenseBook], T], answer: Future[T] | None = None) -> None:
        with self._gate:
            if not self._ended:
                self._jobs.put(_Job(work, answer))
            elif answer:
                answer.set_exception(self.trouble or StoreError("the dense index is closed"))

    def _run(self) -> None:
        try:
            book = DenseBook(self._store, self.memory)
            try:
                self._serve(book)
            finally:
                book.close()
        except SpecchatError as error:
            self.trouble = error
        finally:
            self._end()

    def _serve(self, book: DenseBook) -> None:
        """Do jobs as they come, and write every `INTERVAL` while there is something to write."""
        written = monotonic()
        while True:
            due = written + INTERVAL - monotonic() if book.dirty else None
            if due is not None and due <= 0.0:
                self._write(book)
                written = monotonic()
                continue
            try:
                job = self._jobs.get(timeout=due)
            except Empty:
                continue
            if job is None:
                return
            self._do(job, book)

    def _write(self, book: DenseBook) -> None:
        try:
            book.flush()
        except SpecchatError as error:
            self.trouble = error
        else:
            self.trouble = None

    def _do(self, job: _Job, book: DenseBook) -> None:
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
        while not self._jobs.empty():
            job = self._jobs.get()
            if job and job.answer:
                job.answer.set_exception(self.trouble or StoreError("the dense index is closed"))
