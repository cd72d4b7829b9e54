"""Encoding by the idle target: states for texts that it has not written itself.

Imported texts, the prompts of chats, and everything once more when a new generation is begun. The
work is cut into passes of about `SLICE` seconds; between two of them the generator yields, and who
drives it lets the person go first. What a pass gave is with the keeper before the next one starts,
so it can be left for good at any yield: a later call finds in the index itself what is missing.

Owns the order of evaluation. Refuses to know idleness and where texts come from.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from datastores.dense_book import DenseBook
from datastores.dense_keeper import DenseKeeper
from engines.target import Target
from engines.tree import chain

SLICE = 0.1
"""Seconds one pass should take: how long a person may have to wait for it."""
FIRST_ROWS = 4
"""Rows of the first pass; its time tells how many the next may have."""


@dataclass(slots=True)
class _Pace:
    """How many rows a pass may have."""

    most: int
    rows: int = FIRST_ROWS

    def observe(self, seconds: float) -> None:
        """Twice as many rows while that stays within `SLICE`, fewer where it took longer."""
        fitting = int(self.rows * SLICE / max(seconds, 1e-6))
        self.rows = max(1, min(self.most, 2 * self.rows, fitting))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the backlog is worked off: documents, and positions encoded in this call."""

    documents_done: int
    documents: int
    positions: int


def encode_backlog(target: Target, keeper: DenseKeeper) -> Generator[Progress]:
    """Encode all that the newest generation lacks, then let it serve. Uses the target's cache.

    Raises:
        StoreError: the index cannot be read.
    """
    documents = keeper.ask(DenseBook.backlog)
    positions, pace = 0, _Pace(target.max_rows, min(FIRST_ROWS, target.max_rows))
    for done, document in enumerate(documents):
        for encoded in _encode(target, keeper, document, pace):
            positions += encoded
            yield Progress(done, len(documents), positions)
    keeper.ask(DenseBook.promote)
    yield Progress(len(documents), len(documents), positions)


def _encode(target: Target, keeper: DenseKeeper, document: int, pace: _Pace) -> Generator[int]:
    """Evaluate one document; yields how many wanted states each pass gave."""
    wanting = keeper.ask(lambda book: book.wanting(document))
    wanted = wanting.positions
    while len(wanted):
        # The state that produced position p is that of row p - 1.
        start = _window(int(wanted[0]) - 1, target.context_length)
        stop = min(int(wanted[-1]), start + target.context_length)
        target.rewind(0)
        while start + len(target.tokens) < stop:
            row = start + len(target.tokens)
            begun = perf_counter()
            states = _pass(target, wanting.tokens[row : min(stop, row + pace.rows)])
            given = wanted[(wanted > row) & (wanted <= row + len(states))]
            if len(given):
                keeper.encoded(document, given, states[given - 1 - row])
            pace.observe(perf_counter() - begun)
            yield len(given)
        wanted = wanted[wanted > stop]


def _pass(target: Target, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Append tokens to the cache; own copies of their states."""
    rows = target.verify(chain(tokens[0], list(tokens[1:]), 0))
    states: NDArray[np.float32] = rows.hidden[: len(tokens)].copy()
    target.commit(range(len(tokens)))
    return states


def _window(row: int, context: int) -> int:
    """Where to start reading for the state of `row`: at the front, or half a context before."""
    return 0 if row < context else row - context // 2
