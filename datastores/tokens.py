"""Token ids: packed as bytes, and compared by their common prefix.

Bytes are little-endian uint32, four each, so ids up to 2^32 - 1 fit. NumPy is imported where it is
used: `specchat ask` reads a message's columns without it.
"""

from __future__ import annotations

from collections.abc import Sequence

COMPARED_TOKENS = 256
"""Tokens compared at a time, as one slice."""


def pack(tokens: Sequence[int]) -> bytes:
    """The bytes of `tokens`. Raises OverflowError if an id is negative or above 2^32 - 1."""
    import numpy as np

    return np.array(tokens, dtype="<u4").tobytes()


def unpack(blob: bytes) -> tuple[int, ...]:
    """The token ids in `blob`, whose length is a multiple of four."""
    import numpy as np

    return tuple(np.frombuffer(blob, dtype="<u4").tolist())


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix.

    A draft model compares the whole chat at every draft. Comparing slices takes half the time of a
    loop over tokens, and a sixth if they share their integer objects.
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
