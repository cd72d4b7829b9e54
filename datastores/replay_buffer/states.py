"""The hidden states of one answer, one byte per element.

The largest element of a state becomes 127, so every element is accurate to 0.4 % of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
MAX_CODE = 127


@dataclass(frozen=True, slots=True, eq=False)
class AnswerStates:
    """States that produced the first n tokens of an answer.

    Attributes:
        codes: int8 [n, width].
        scales: float32 [n]; a state is its codes times its scale.
    """

    codes: NDArray[np.int8]
    scales: Floats

    def __len__(self) -> int:
        return len(self.scales)

    def decoded(self) -> Floats:
        """The states, float32 [n, width]."""
        return self.codes * self.scales[:, None]


NO_STATES = AnswerStates(np.empty((0, 0), np.int8), np.empty(0, np.float32))
"""The states of an answer that has none stored."""


def encode(hidden: Floats) -> AnswerStates:
    """Round states float32 [n, width].

    Raises:
        ValueError: one is not finite.
    """
    scales = np.abs(hidden).max(axis=1, initial=0.0) / MAX_CODE
    if not np.isfinite(scales).all():
        raise ValueError("a state is not finite")
    # A state of zeros has no scale; any divisor but 0 preserves it.
    divisors = np.where(scales > 0.0, scales, 1.0)[:, None]
    return AnswerStates(np.rint(hidden / divisors).astype(np.int8), scales.astype(np.float32))


def pack(states: AnswerStates) -> bytes:
    """The bytes of at least one state."""
    return states.scales.astype("<f4").tobytes() + states.codes.tobytes()


def unpack(count: int, packed: bytes) -> AnswerStates:
    """The `count` states that `pack` was given.

    Raises:
        ValueError: these are not the bytes of `count` states.
    """
    if count < 1 or len(packed) <= 4 * count or (len(packed) - 4 * count) % count:
        raise ValueError("its states are cut short")
    scales = np.frombuffer(packed, "<f4", count).astype(np.float32)
    if not (np.isfinite(scales) & (scales >= 0.0)).all():
        raise ValueError("a state is not finite")
    codes = np.frombuffer(packed, np.int8, -1, 4 * count)
    return AnswerStates(codes.reshape(count, -1), scales)
