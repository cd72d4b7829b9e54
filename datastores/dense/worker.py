"""The one thread that uses a dense index; other threads hand it work and continue.

The decoding thread only appends to a list. It does not even wake this thread, which polls every
`POLL_S` seconds while answers are written: two threads that alternate at every step cost each other
more time than the work takes. Loading at start-up, encoding, writing, fitting and the import of
faiss happen here. A failing disk costs no draft: writing is tried again.
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

from datastores.dense.index import DenseIndex, TextStates
from datastores.dense.memory import DenseMemory
from datastores.dense.projection import Floats
from datastores.dense.store import DenseStore
from datastores.errors import SpecchatError, StoreError

WRITE_S = 0.3
"""Seconds between two writes: a killed process loses less than a second."""
POLL_S = 0.05
"""Seconds between two polls: the delay after which new states can be found. At ten milliseconds a
step it shortens drafts of this index alone by 5 %, and by 1 % together with prompt lookup."""
IDLE_S = 1.0
"""Seconds without work after which the thread sleeps until it is woken."""
CLOSE_TIMEOUT_S = 15.0
"""Longest wait of `close`, longer than a write waits for the lock of another process."""

T = TypeVar("T")


class WorkerClosedError(StoreError):
    """The worker was closed before it did the work; everything it held is written."""

    def __init__(self) -> None:
        super().__init__("the dense index is closed")


class _Recorded(NamedTuple):
    """Part of an answer: tokens from a position on, and the states that produced them."""

    position: int
    tokens: Sequence[int]
    states: Floats


class _Job(NamedTuple):
    """Work, and the future that its caller waits for."""

    work: Callable[[DenseIndex], object]
    result: Future[Any] | None = None


class DenseWorker:
    """Uses one model's dense index on a thread of its own.

    Attributes:
        memory: what drafters search; it fills while the thread reads the disk.
        error: why the index could not be read, or last written; None if there was no error.
    """

    def __init__(self, store: DenseStore, vocabulary: int) -> None:
        """Start to read `store`, which belongs to the thread from now on."""
        self.memory = DenseMemory(vocabulary)
        self.error: SpecchatError | None = None
        self._store = store
        self._inbox: deque[_Recorded | _Job] = deque()
        self._wake = threading.Event()
        self._asleep = False
        self._closing = threading.Event()
        self._gate = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="dense-worker", daemon=True)
        self._thread.start()

    def begin(self, owner: str, tokens: Sequence[int], first: int = 1) -> None:
        """Start an answer after `tokens`, which the caller may change afterwards; see
        `DenseIndex.begin`."""
        prompt = list(tokens)
        self._submit(_Job(lambda index: index.begin(owner, prompt, first)))

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Add tokens of the answer and the states that produced them; see `DenseIndex.observe`."""
        if not self._ended:
            self._inbox.append(_Recorded(position, tokens, states))
        if self._asleep:
            self._wake.set()

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._submit(_Job(DenseIndex.leave))

    def keep(self, owner: str, offered: Callable[[], bool]) -> None:
        """Keep what was recorded under `owner` if `offered`, which is called on the thread: someone
        who could not know of the record may have deleted the owner meanwhile."""

        def check(index: DenseIndex) -> None:
            if not offered():
                index.forget(owner)

        self._submit(_Job(check))

    def add_states(self, text: int, positions: NDArray[np.int64], states: Floats) -> None:
        """Add states of the backlog; see `DenseIndex.add_states`."""
        new = TextStates(text, positions, states)
        self._submit(_Job(lambda index: index.add_states(new)))

    def ask(self, work: Callable[[DenseIndex], T]) -> T:
        """Do `work` on the thread and wait for its result.

        Raises:
            WorkerClosedError: the worker was closed.
            StoreError: the disk failed.
        """
        return self.request(work).result()

    def request(self, work: Callable[[DenseIndex], T]) -> Future[T]:
        """As `ask`, without waiting: returns a future."""
        result: Future[T] = Future()
        self._submit(_Job(work, result))
        return result

    def close(self) -> None:
        """Write what is left, and end the thread.

        Loading stops at once. If the file is being rewritten after a deletion, this waits up to
        `CLOSE_TIMEOUT_S`; everything recorded is written by then, and the next opening completes
        the deletion.
        """
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _submit(self, job: _Job) -> None:
        with self._gate:
            if not self._ended:
                self._inbox.append(job)
                self._wake.set()
            elif job.result:
                job.result.set_exception(self.error or WorkerClosedError())

    def _run(self) -> None:
        try:
            index = DenseIndex(self._store, self.memory, self._closing.is_set)
            try:
                self._serve(index)
            finally:
                index.close()
        except SpecchatError as error:
            self.error = error
        finally:
            self._end()

    def _serve(self, index: DenseIndex) -> None:
        """Process the inbox until closed, and write every `WRITE_S`."""
        worked = written = monotonic()
        while not self._closing.is_set() or self._inbox:
            now = monotonic()
            if self._inbox:
                self._work_off(index)
                worked = now
            if index.unwritten and now >= written + WRITE_S:
                self._do(_Job(DenseIndex.flush), index)
                written = now
            if not self._closing.is_set():
                self._rest(index.unwritten or now < worked + IDLE_S)

    def _rest(self, briefly: bool) -> None:
        """Wait for `POLL_S`, or until there is work."""
        self._asleep = not briefly
        if briefly or not self._inbox:
            self._wake.wait(POLL_S if briefly else None)
        self._asleep = False
        self._wake.clear()

    def _work_off(self, index: DenseIndex) -> None:
        """Process the inbox in order, with consecutive parts of one answer combined."""
        parts: list[_Recorded] = []
        for _ in range(len(self._inbox)):
            item = self._inbox.popleft()
            if isinstance(item, _Recorded):
                parts.append(item)
            else:
                self._record(parts, index)
                parts = []
                self._do(item, index)
        self._record(parts, index)

    def _record(self, parts: Sequence[_Recorded], index: DenseIndex) -> None:
        if parts:
            tokens = [token for part in parts for token in part.tokens]
            states = np.concatenate([part.states for part in parts])
            work = _Job(lambda index: index.observe(parts[0].position, tokens, states))
            self._do(work, index)

    def _do(self, job: _Job, index: DenseIndex) -> None:
        try:
            result = job.work(index)
        except SpecchatError as error:
            if job.result:
                job.result.set_exception(error)
            else:
                self.error = error
        else:
            if not index.unwritten:
                self.error = None
            if job.result:
                job.result.set_result(result)
        finally:
            if job.result:
                job.result.cancel()  # only after a bug of ours, which ends the thread

    def _end(self) -> None:
        """Accept no more work, and fail what is still waiting."""
        with self._gate:
            self._ended = True
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, _Job) and item.result:
                item.result.set_exception(self.error or WorkerClosedError())
