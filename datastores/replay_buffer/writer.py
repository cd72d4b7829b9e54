"""Writes answers into a replay buffer, on a thread of its own.

While an answer is generated, its tokens and the logits of some positions only gather in memory; its
likeliest tokens are found and written when it is complete, and nothing is written of an answer that
nobody asks to keep. The file is opened for the first record: a program that records nothing makes
none. A failing disk costs no answer.

Owns the thread and the order of what it does. Refuses to know which answers may be kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue
from time import time

import numpy as np
from numpy.typing import NDArray

from datastores.errors import SpecchatError, StoreError
from datastores.replay_buffer.record import Halves, Integers, ReplayRecord, top_of
from datastores.replay_buffer.store import ReplayBuffer

Floats = NDArray[np.float32]

MAX_PENDING_BYTES = 64 * 2**20
"""Logits that gather before the likeliest tokens are found while the answer is still written: all
of a usual answer, up to 130 rows of 128,000 tokens."""
TOP_ROWS = 32
"""Rows whose likeliest tokens are found at a time."""
BUSY_TIMEOUT_MS = 15_000
"""Longest wait for another process's transaction, and so of `ReplayWriter.close`."""


@dataclass(frozen=True, slots=True)
class AnswerOrigin:
    """Where an answer comes from.

    Attributes:
        source: what it is filed under, to be erased by.
        chat, question, topic: see `ReplayRecord`.
        offered: whether the source is still offered; asked after writing, on the writer's thread,
            since it may be deleted at any moment.
    """

    source: str
    chat: int
    question: str
    topic: str
    offered: Callable[[], bool] = lambda: True


class AnswerRecording:
    """An answer that is being generated. Filled by one thread, reduced by the writer's."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.pending_bytes = 0
        self._tokens = list(prompt)
        self._prompt_length = len(prompt)
        self._positions: list[int] = []
        self._pending: deque[Floats] = deque()
        self._reduced: list[tuple[Integers, Halves, Halves]] = []

    @property
    def rows(self) -> int:
        """Positions whose logits were added."""
        return len(self._positions)

    def append(self, tokens: Sequence[int], kept: Sequence[int], logits: Floats) -> None:
        """Add tokens, and the logits [len(kept), vocabulary] that gave tokens[kept[i]]."""
        if kept:
            length = len(self._tokens)
            self._positions += [length + index for index in kept]
            self._pending.append(logits)
            self.pending_bytes += logits.nbytes
        self._tokens += tokens

    def reduce(self) -> None:
        """Replace logits by what a record keeps of them. On the writer's thread."""
        while self._pending:
            rows = [self._pending.popleft()]
            while self._pending and len(rows) < TOP_ROWS:
                rows.append(self._pending.popleft())
            self._reduced.append(top_of(np.concatenate(rows)))

    def record(self, origin: AnswerOrigin, vocabulary: int) -> ReplayRecord:
        """The whole answer, which takes no more tokens. On the writer's thread."""
        self.reduce()
        top_tokens, top_logprobs, rest = top_of(np.zeros((0, vocabulary), np.float32))
        if self._reduced:
            columns = zip(*self._reduced, strict=True)
            top_tokens, top_logprobs, rest = (np.concatenate(column) for column in columns)
        return ReplayRecord(
            id=0,
            chat=origin.chat,
            created=time(),
            question=origin.question,
            topic=origin.topic,
            tokens=np.array(self._tokens, np.int32),
            prompt_length=self._prompt_length,
            positions=np.array(self._positions, np.int32),
            top_tokens=top_tokens,
            top_logprobs=top_logprobs,
            rest_logprob=rest,
        )


class ReplayWriter:
    """Writes into one buffer.

    Attributes:
        error: why an answer could last not be written; None while all is well.
    """

    def __init__(self, open_buffer: Callable[[], ReplayBuffer]) -> None:
        """`open_buffer` is called on the thread, before the first record."""
        self.error: SpecchatError | None = None
        self._open_buffer = open_buffer
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def reduce_if_large(self, recording: AnswerRecording) -> None:
        """Have logits that gathered reduced, if they take too much memory."""
        if recording.pending_bytes > MAX_PENDING_BYTES:
            recording.pending_bytes = 0
            self._inbox.put(recording.reduce)

    def keep(self, recording: AnswerRecording, origin: AnswerOrigin) -> None:
        """Have a complete answer written."""
        self._inbox.put(lambda: self._do(lambda buffer: _write(buffer, recording, origin)))

    def forget(self, source: str) -> None:
        """Have everything of `source` erased, after what was asked for before."""
        self._inbox.put(lambda: self._do(lambda buffer: buffer.forget(source)))

    def flush(self) -> None:
        """Wait until all that was asked for is done."""
        done = threading.Event()
        self._inbox.put(done.set)
        done.wait()

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._inbox.put(None)
        self._thread.join()

    @cached_property
    def _buffer(self) -> ReplayBuffer:
        buffer = self._open_buffer()
        buffer.store.rows(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        return buffer

    def _do(self, work: Callable[[ReplayBuffer], object]) -> None:
        try:
            work(self._buffer)
            self.error = None
        except SpecchatError as error:
            self.error = error

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()
        if "_buffer" in vars(self):
            self._buffer.close()


def _write(buffer: ReplayBuffer, recording: AnswerRecording, origin: AnswerOrigin) -> None:
    try:
        buffer.add(origin.source, recording.record(origin, buffer.vocabulary))
    except ValueError as error:
        raise StoreError(f"{buffer.store.path}: an answer was not recorded: {error}") from error
    if not origin.offered():
        # Deleted meanwhile, by someone who could not know of this record.
        buffer.forget(origin.source)
