"""What a dense index says of itself: how far it is, and what a document lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Status:
    """How far a dense index is.

    Attributes:
        states: states seen, which its moments describe.
        positions: positions that could have a key.
        keys: those that have one, and so can be found.
        rebuilt: those that have one in the generation that is being built; None where none is.
        explained: share of the variance that the serving projection kept of what it was fitted to.
    """

    states: int
    positions: int
    keys: int
    rebuilt: int | None
    explained: float


@dataclass(frozen=True, slots=True)
class Wanting:
    """A document, and the positions whose states are wanted, ascending."""

    document: int
    tokens: tuple[int, ...]
    positions: NDArray[np.int64]
