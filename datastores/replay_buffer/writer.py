"""Writes answers into a replay buffer, on a thread of its own.

While an answer is generated, its tokens and the logits of some positions are only collected in
memory. Their most probable tokens are extracted and written when it is complete, and only for
answers that are to be kept. The file is opened for the first record. A failing disk costs no
answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from time import time

import numpy as np
from numpy.typing import NDArray

from datastores.errors import SpecchatError, StoreError
from datastores.replay_buffer.record import Halves, Integers, ReplayRecord, top_of
from datastores.replay_buffer.states import NO_STATES, encode
from datastores.replay_buffer.store import ReplayBuffer

Floats = NDArray[np.float32]

BLOCK_BYTES = 16 * 2**20
"""Size of a block of logits. Those of a usual answer fit into one, so that they are reduced only
when it is complete; with 128,000 tokens it holds 32 rows."""
MAX_BLOCK_ROWS = 1024
BLOCKS = 3
"""Most blocks. While all are full, no further positions are kept."""
MAX_ANSWER_STATES = 1024
"""First states kept of one answer: 16 MB of memory at width 4,096 while it is written."""
BUSY_TIMEOUT_MS = 15_000
"""Longest wait for another process's transaction, and so of `ReplayWriter.close`."""


@dataclass(frozen=True, slots=True)
class AnswerDetails:
    """The origin of an answer.

    Attributes:
        owner: what it is stored under, and erased by.
        chat, question, topic: see `ReplayRecord`.
        offered: whether the owner still exists; called after writing, on the writer's thread, since
            it may be deleted at any moment.
    """

    owner: str
    chat: int
    question: str
    topic: str
    offered: Callable[[], bool] = lambda: True


class LogitsPool:
    """Reusable memory for rows of logits: allocating it costs more than the copy.

    One thread takes blocks, another gives them back.
    """

    def __init__(self, vocabulary: int) -> None:
        rows = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (4 * vocabulary)))
        self._shape = rows, vocabulary
        self._free: deque[Floats] = deque()
        self._made = 0

    def take(self) -> Floats | None:
        """A block, float32 [rows, vocabulary]; None if all are in use."""
        if self._free:
            return self._free.popleft()
        if self._made == BLOCKS:
            return None
        self._made += 1
        return np.empty(self._shape, np.float32)

    def give_back(self, block: Floats) -> None:
        """Return a block that is no longer in use."""
        self._free.append(block)


class AnswerRecording:
    """An answer that is being generated: filled by one thread, reduced by the writer's."""

    def __init__(self, pool: LogitsPool) -> None:
        self._tokens: list[int] = []
        self._prompt_length = 0
        self._positions: list[int] = []
        self._pool = pool
        self._block: Floats | None = None
        self._used = 0
        self._reduced: list[tuple[Integers, Halves, Halves]] = []
        self._states: list[Floats] = []
        self._state_count = 0

    @property
    def rows(self) -> int:
        """Number of positions whose logits were added."""
        return len(self._positions)

    @property
    def has_begun(self) -> bool:
        """Whether the prompt is set."""
        return self._prompt_length > 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Set the prompt, before anything is appended."""
        self._tokens += prompt
        self._prompt_length = len(prompt)

    def memory(self, rows: int) -> tuple[Floats | None, Callable[[], object] | None]:
        """Memory for `rows` further rows, to be filled before they are appended; None if there is
        none. Also returns work for the writer's thread if a block is full.
        """
        full = None
        if self._block is not None and self._used + rows > len(self._block):
            full = partial(self._reduce, self._block, self._used)
            self._block, self._used = None, 0
        if self._block is None:
            self._block = self._pool.take()
        if self._block is None or self._used + rows > len(self._block):
            return None, full
        return self._block[self._used : self._used + rows], full

    def append(self, tokens: Sequence[int], kept: Sequence[int], states: Floats) -> None:
        """Add tokens; the logits of tokens[kept[i]] are in the memory returned last.

        Args:
            states: float32 [len(tokens), width], which produced them and must not change later;
                without columns if there are none.
        """
        length = len(self._tokens)
        left = MAX_ANSWER_STATES - self._state_count
        if states.size and left > 0:
            self._states.append(states[:left])
            self._state_count += len(self._states[-1])
        self._positions += [length + index for index in kept]
        self._used += len(kept)
        self._tokens += tokens

    def release(self) -> None:
        """Give the memory back without a record."""
        if self._block is not None:
            self._pool.give_back(self._block)
            self._block = None

    def _reduce(self, block: Floats, rows: int) -> None:
        """Replace logits by the columns of a record. Runs on the writer's thread."""
        try:
            self._reduced.append(top_of(block[:rows]))
        finally:
            self._pool.give_back(block)

    def record(self, details: AnswerDetails, vocabulary: int) -> ReplayRecord:
        """The record of the complete answer. Runs on the writer's thread."""
        if self._block is not None:
            self._reduce(self._block, self._used)
            self._block = None
        top_tokens, top_logprobs, rest = top_of(np.zeros((0, vocabulary), np.float32))
        if self._reduced:
            columns = zip(*self._reduced, strict=True)
            top_tokens, top_logprobs, rest = (np.concatenate(column) for column in columns)
        return ReplayRecord(
            id=0,
            chat=details.chat,
            created=time(),
            question=details.question,
            topic=details.topic,
            tokens=np.array(self._tokens, np.int32),
            prompt_length=self._prompt_length,
            positions=np.array(self._positions, np.int32),
            top_tokens=top_tokens,
            top_logprobs=top_logprobs,
            rest_logprob=rest,
            states=encode(np.concatenate(self._states)) if self._states else NO_STATES,
        )


class ReplayWriter:
    """Writes into one buffer.

    Attributes:
        error: why the last answer could not be written; None if it was.
    """

    def __init__(self, vocabulary: int, open_buffer: Callable[[], ReplayBuffer]) -> None:
        """`open_buffer` is called on the thread, before the first record."""
        self._pool = LogitsPool(vocabulary)
        self.error: SpecchatError | None = None
        self._open_buffer = open_buffer
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="replay-writer", daemon=True)
        self._thread.start()

    def recording(self) -> AnswerRecording:
        """A recording of the next answer."""
        return AnswerRecording(self._pool)

    def memory(self, recording: AnswerRecording, rows: int) -> Floats | None:
        """Memory for `rows` further rows of logits; None if there is none left."""
        memory, full = recording.memory(rows)
        if full is not None:
            self._inbox.put(full)
        return memory

    def keep(self, recording: AnswerRecording, details: AnswerDetails) -> None:
        """Write a complete answer."""
        self._inbox.put(lambda: self._do(lambda buffer: _write(buffer, recording, details)))

    def forget(self, owner: str) -> None:
        """Erase everything of `owner`, after earlier requests."""
        self._inbox.put(lambda: self._do(lambda buffer: buffer.forget(owner)))

    def flush(self) -> None:
        """Wait until all earlier requests are done."""
        done = threading.Event()
        self._inbox.put(done.set)
        done.wait()

    def close(self) -> None:
        """Finish all requests, and close the file."""
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


def _write(buffer: ReplayBuffer, recording: AnswerRecording, details: AnswerDetails) -> None:
    try:
        buffer.add(details.owner, recording.record(details, buffer.vocabulary))
    except ValueError as error:
        raise StoreError(f"{buffer.store.path}: an answer was not recorded: {error}") from error
    if not details.offered():
        # It was deleted meanwhile, by someone who could not know of this record.
        buffer.forget(details.owner)
