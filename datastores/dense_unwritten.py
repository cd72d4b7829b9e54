"""What a dense index has taken in and not yet written: tokens, and states without a key on disk.

States wait for a projection if there is none yet, since no raw state ever reaches the disk. Owns
what waits; writing it is all or nothing, and what could not be written goes on waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense import DenseStore
from datastores.dense_generations import Generation
from datastores.dense_moments import Floats
from datastores.dense_rows import Encoded, Written

_NONE = np.empty(0, np.int64)


class Fresh(NamedTuple):
    """States float32 [n, width] that produced the tokens at `positions` [n] of one document."""

    document: int
    positions: NDArray[np.int64]
    states: Floats


class Unwritten:
    """Tokens and states on their way to the disk.

    Attributes:
        states: in the order they came; to be read only.
    """

    def __init__(self) -> None:
        self.states: list[Fresh] = []
        self._tokens: dict[int, tuple[int, list[int]]] = {}

    def say(self, said: Written) -> None:
        """Tokens that follow those a document has."""
        self._tokens.setdefault(said.document, (said.start, []))[1].extend(said.tokens)

    def add(self, fresh: Fresh) -> None:
        """States that want a key in every generation."""
        self.states.append(fresh)

    def documents(self) -> set[int]:
        """The documents whose states wait."""
        return {fresh.document for fresh in self.states}

    def positions(self, document: int) -> NDArray[np.int64]:
        """Positions of a document whose states wait."""
        held = [fresh.positions for fresh in self.states if fresh.document == document]
        return np.concatenate([_NONE, *held])

    def ready(self, generations: Sequence[Generation]) -> bool:
        """Whether there is anything to `write`."""
        return bool(self._tokens or (self.states and generations))

    def write(self, store: DenseStore, generations: Sequence[Generation]) -> None:
        """Write tokens, and a key of every state for each generation; states wait where there is
        none.

        Raises:
            StoreError: the disk failed.
        """
        tokens = [Written(document, *said) for document, said in self._tokens.items()]
        keys = [
            Encoded(
                fresh.document,
                generation.id,
                fresh.positions,
                generation.projection.encode(fresh.states),
            )
            for generation in generations
            for fresh in self.states
        ]
        if tokens or keys:
            store.write(tokens, keys)
        self._tokens = {}
        if generations:
            self.states = []
