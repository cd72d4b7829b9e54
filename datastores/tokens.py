"""Token ids as bytes: little-endian uint32, four bytes each, so ids up to 2^32 - 1 fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pack(tokens: Sequence[int]) -> bytes:
    """The bytes of `tokens`. Raises OverflowError where an id is negative or above 2^32 - 1."""
    return np.array(tokens, dtype="<u4").tobytes()


def unpack(blob: bytes) -> tuple[int, ...]:
    """The token ids in `blob`, whose length is a multiple of four."""
    return tuple(np.frombuffer(blob, dtype="<u4").tolist())
