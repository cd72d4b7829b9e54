"""Winnowing: which n-grams stand for a text in the suffix index.

Of each `WINDOW` neighbouring n-grams of `GRAM` tokens, the one with the smallest hash is kept, and
of equal hashes the last (Schleimer, Wilkerson and Aiken 2003): two of `WINDOW` + 1 on average. So
of `MIN_SURE_TOKENS` tokens that a text shares with a context, it keeps at least one n-gram.

N-grams of 4 to 8 tokens and windows of 4 to 24 are within 1 % of each other in tokens per step
(code, from other files of the same packages, 16 rows, beside CREST). A window of 24 takes half the
places of one of 12.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datastores.crest.format import hash_columns, hashes

GRAM = 5
"""Tokens of an n-gram."""
WINDOW = 12
"""Neighbouring n-grams of which at least one is kept."""
MIN_SURE_TOKENS = GRAM + WINDOW - 1
"""Length from which on every match is found."""

HASH_MASK = (1 << 32) - 1
FIRST_HASH = -(1 << 31)
"""Hashes are signed numbers of 32 bits, for which SQLite takes four bytes."""

Integers = NDArray[np.int64]


def winnow(tokens: NDArray[np.uint32]) -> tuple[Integers, Integers]:
    """The hashes of the kept n-grams of a text, and the offset of each one's last token.

    A text shorter than `MIN_SURE_TOKENS` has none.
    """
    count = len(tokens) - GRAM + 1
    if count < WINDOW:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found = hash_columns([tokens[first : first + count] for first in range(GRAM)])
    values = (found & np.uint64(HASH_MASK)).astype(np.int64) + FIRST_HASH
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)
    latest = WINDOW - 1 - windows[:, ::-1].argmin(axis=1)
    kept = np.unique(np.arange(len(windows)) + latest)
    return values[kept], kept + (GRAM - 1)


def last_grams(context: Sequence[int], number: int) -> list[int]:
    """The hashes of the last n-grams of `context`, the last one first; at most `number`."""
    tail = context[-(number + GRAM - 1) :]
    ends = range(len(tail), GRAM - 1, -1)
    return [(hashes(tail[:end], GRAM)[-1] & HASH_MASK) + FIRST_HASH for end in ends]
