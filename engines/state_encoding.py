"""Computes the hidden states of texts that the target has not generated, while it is idle.

These are imported texts and the prompts of chats. The work is cut into passes of about `PASS_S`
seconds; the generator yields between them, so that its caller can serve a question first, and it
never waits longer than that for the index. The states of a pass are handed over before the next
one starts, so the generator may be abandoned at any yield: the index knows what is missing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from datastores.dense.index import DenseIndex, MissingKeys
from datastores.dense.worker import DenseWorker
from engines.draft_tree import chain
from engines.target import Floats, Target

PASS_S = 0.05
"""Target duration of a pass in seconds: how long a user may have to wait for it."""
FIRST_ROWS = 4
"""Rows of the first pass; its time determines the rows of the next."""
WINDOW = 1024
"""Tokens of a long text evaluated at a time, and evaluated again after an answer."""
OVERLAP = 256
"""Tokens that a window shares with the previous one: the shortest context of a state."""

T = TypeVar("T")
Progress = TypeVar("Progress")


class StateEncoder(Protocol):
    """Evaluates a text in pieces."""

    @property
    def max_rows(self) -> int:
        """Most tokens of one pass."""

    @property
    def room(self) -> int:
        """Length of the longest text that fits."""

    def holds(self, text: Sequence[int]) -> bool:
        """Whether the cache holds exactly `text`, so that reading can continue after it."""

    def read(self, tokens: Sequence[int], start: int) -> Floats:
        """Evaluate `tokens`, which start at position `start` of the text; 0 begins a new text.

        Returns:
            states, float32 [len(tokens), width], valid until the next call.
        """


class InPlace:
    """Evaluates with any target, and replaces the contents of its cache."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def max_rows(self) -> int:
        return self._target.max_rows

    @property
    def room(self) -> int:
        return self._target.context_length

    def holds(self, text: Sequence[int]) -> bool:
        return list(self._target.tokens) == list(text)

    def read(self, tokens: Sequence[int], start: int) -> Floats:
        if start != len(self._target.tokens) or not start:
            self._target.rewind(start)
        rows = self._target.verify(chain(tokens[0], list(tokens[1:]), 0))
        states: Floats = rows.hidden[: len(tokens)].copy()
        self._target.commit(range(len(tokens)))
        return states


def encoder_of(target: Target) -> StateEncoder:
    """An encoder that preserves the target's cache if there is room for one, else `InPlace`."""
    scratch: StateEncoder | None = getattr(target, "scratch", None)
    return scratch if scratch is not None and scratch.room >= WINDOW else InPlace(target)


@dataclass(slots=True)
class EncodeChunkSize:
    """The number of rows that a pass may have to stay within `PASS_S`."""

    rows: int = FIRST_ROWS

    def observe(self, rows: int, seconds: float) -> None:
        """At most double the rows after a short pass; reduce them after a long one."""
        fitting = int(rows * PASS_S / max(seconds, 1e-6))
        self.rows = max(1, min(2 * rows, fitting))


def encode_backlog(target: Target, worker: DenseWorker) -> Generator[int]:
    """Encode everything that the index lacks; yields the number of positions encoded so far.

    Raises:
        StoreError: the index cannot be read.
        ModelError: the target cannot evaluate a text.
    """
    done, size = 0, EncodeChunkSize()
    texts = yield from waited(worker.request(DenseIndex.backlog), done)
    for text in texts:
        request = worker.request(partial(DenseIndex.missing_keys, text=text))
        missing = yield from waited(request, done)
        for encoded in _encode(target, worker, missing, size):
            done += encoded
            yield done
    yield done


def waited(result: Future[T], progress: Progress) -> Generator[Progress, None, T]:
    """Wait for another thread's result, yielding `progress` once in `PASS_S`."""
    while wait([result], PASS_S).not_done:
        yield progress
    return result.result()


def _encode(
    target: Target, worker: DenseWorker, missing: MissingKeys, size: EncodeChunkSize
) -> Generator[int]:
    """Evaluate one text; yields the number of missing states that each pass computed."""
    tokens, positions = missing.tokens, missing.positions
    while len(positions):
        encoder = encoder_of(target)
        # The state that produced position p is that of row p - 1.
        room = min(encoder.room, WINDOW)
        start = row = _window_start(int(positions[0]) - 1, room)
        stop = min(int(positions[-1]), start + room)
        # An answer in between may have evicted the part already read.
        while row < stop and (row == start or encoder.holds(tokens[start:row])):
            end = min(stop, row + min(size.rows, encoder.max_rows))
            started = perf_counter()
            states = encoder.read(tokens[row:end], row - start)
            given = positions[(positions > row) & (positions <= end)]
            if len(given):
                worker.add_states(missing.text, given, states[given - 1 - row])
            size.observe(end - row, perf_counter() - started)
            row, positions = end, positions[len(given) :]
            yield len(given)


def _window_start(row: int, room: int) -> int:
    """Where to start reading for the state of `row`: at 0, or `OVERLAP` before it."""
    return 0 if row < room else row - min(OVERLAP, room // 2)
