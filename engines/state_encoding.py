"""Encoding by the idle target: states for texts that it has not written itself.

Imported texts, the prompts of chats, and everything once more when a new generation is begun. The
work is cut into passes of about `SLICE` seconds; between two of them the generator yields, and who
drives it lets the person go first. Nor is the keeper of the index waited for any longer than that.
What a pass gave is with the keeper before the next one starts, so it can be left for good at any
yield: a later call finds in the index itself what is missing.

Owns the order of evaluation. Refuses to know idleness and where texts come from.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from datastores.dense.recorder import DenseRecorder, Wanting
from datastores.dense.worker import DenseWorker
from engines.draft_tree import chain
from engines.target import Floats, Target

SLICE = 0.05
"""Seconds one pass should take: how long a person may have to wait for it."""
FIRST_ROWS = 4
"""Rows of the first pass; its time tells how many the next may have."""
WINDOW = 1024
"""Tokens of a long text that are read at a time: so many have to be read again after an answer."""
BEFORE = 256
"""Tokens that a window has in common with the one before: what a state is to know at least."""

T = TypeVar("T")


class StateEncoder(Protocol):
    """Evaluates a text piece by piece."""

    @property
    def max_rows(self) -> int:
        """The most tokens of one pass."""
        ...

    @property
    def room(self) -> int:
        """The longest text that fits."""
        ...

    def holds(self, text: Sequence[int]) -> bool:
        """Whether `text` is what was read, all of it, and can be gone on from."""
        ...

    def read(self, tokens: Sequence[int], start: int) -> Floats:
        """States float32 [len(tokens), width] of `tokens`, at positions from `start` on of the text
        read before; 0 begins another. Valid until the next call."""
        ...


class InPlace:
    """A reader for any target, in place of what its cache holds."""

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


def reader_of(target: Target) -> StateEncoder:
    """Beside what the cache holds, where the target can do that and there is room; else in place of
    it."""
    scratch: StateEncoder | None = getattr(target, "scratch", None)
    return scratch if scratch is not None and scratch.room >= WINDOW else InPlace(target)


@dataclass(slots=True)
class _Pace:
    """How many rows a pass may have."""

    rows: int = FIRST_ROWS

    def observe(self, rows: int, seconds: float) -> None:
        """Twice as many as `rows` while that stays within `SLICE`, fewer where it took longer."""
        fitting = int(rows * SLICE / max(seconds, 1e-6))
        self.rows = max(1, min(2 * rows, fitting))


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """How far the backlog is worked off: documents, and positions encoded in this call."""

    documents_done: int
    documents: int
    positions: int


def encode_backlog(target: Target, keeper: DenseWorker) -> Generator[EncodedPart]:
    """Encode all that the newest generation lacks, then let it serve.

    Reads beside what the target's cache holds where it can, else in place of it.

    Raises:
        StoreError: the index cannot be read.
        ModelError: the target cannot evaluate a text.
    """
    progress = EncodedPart(0, 0, 0)
    documents = yield from _waited(keeper.request(DenseRecorder.backlog), progress)
    pace = _Pace()
    for done, document in enumerate(documents):
        progress = EncodedPart(done, len(documents), progress.positions)
        wanting = yield from _waited(
            keeper.request(partial(DenseRecorder.wanting, document=document)), progress
        )
        for given in _encode(target, keeper, wanting, pace):
            progress = EncodedPart(done, len(documents), progress.positions + given)
            yield progress
    progress = EncodedPart(len(documents), len(documents), progress.positions)
    yield from _waited(keeper.request(DenseRecorder.promote), progress)
    yield progress


def _waited(answer: Future[T], progress: EncodedPart) -> Generator[EncodedPart, None, T]:
    """What the keeper answers, waiting for no longer than a pass at a time."""
    while wait([answer], SLICE).not_done:
        yield progress
    return answer.result()


def _encode(target: Target, keeper: DenseWorker, wanting: Wanting, pace: _Pace) -> Generator[int]:
    """Evaluate one document; yields how many wanted states each pass gave."""
    wanted = wanting.positions
    while len(wanted):
        reader = reader_of(target)
        # The state that produced position p is that of row p - 1.
        room = min(reader.room, WINDOW)
        start = row = _window(int(wanted[0]) - 1, room)
        stop = min(int(wanted[-1]), start + room)
        # In between an answer may have been asked for, which takes the room of what was read.
        while row < stop and (row == start or reader.holds(wanting.tokens[start:row])):
            end = min(stop, row + min(pace.rows, reader.max_rows))
            begun = perf_counter()
            states = reader.read(wanting.tokens[row:end], row - start)
            given = wanted[(wanted > row) & (wanted <= end)]
            if len(given):
                keeper.encoded(wanting.document, given, states[given - 1 - row])
            pace.observe(end - row, perf_counter() - begun)
            row, wanted = end, wanted[len(given) :]
            yield len(given)


def _window(row: int, room: int) -> int:
    """Where to start reading for the state of `row`: at the front, or somewhat before it."""
    return 0 if row < room else row - min(BEFORE, room // 2)
