"""Token ids as bytes, and as texts that begin alike.

Bytes are little-endian uint32, four each, so ids up to 2^32 - 1 fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pack(tokens: Sequence[int]) -> bytes:
    """The bytes of `tokens`. Raises OverflowError where an id is negative or above 2^32 - 1."""
    return np.array(tokens, dtype="<u4").tobytes()


def unpack(blob: bytes) -> tuple[int, ...]:
    """The token ids in `blob`, whose length is a multiple of four."""
    return tuple(np.frombuffer(blob, dtype="<u4").tolist())


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at the beginning are the same.

    Found by bisection: lists are compared in C, and a whole chat is compared at every question.
    """
    one, other = list(one), list(other)
    low, high = 0, min(len(one), len(other))
    middle = high
    while low < high:
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low
