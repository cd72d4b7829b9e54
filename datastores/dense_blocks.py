"""Keys and tokens of a document in blocks of fixed size, as they lie in SQLite rows.

A row belongs to one block of a document, so what is written twice falls on the same row and nothing
is kept twice. Owns the arithmetic. Refuses to know SQL and the order of writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.dense_codec import Codes

KEYS = 15
"""Positions in a block of keys: four such rows fill a page of 4 KiB to 94 %."""
TOKENS = 256
"""Token ids in a block of tokens."""


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Keys of one block: bit i of `present` says whether position i has one, in `codes` in order.

    Attributes:
        codes: uint8 [keys present, dimensions].
    """

    block: int
    present: int
    codes: Codes

    def joined(self, other: KeyBlock) -> KeyBlock:
        """Both, `other` where both have a key of the same position."""
        full = np.zeros((KEYS, other.codes.shape[1]), np.uint8)
        for part in (self, other):
            full[offsets(part.present)] = part.codes
        present = self.present | other.present
        return KeyBlock(self.block, present, full[offsets(present)])


def offsets(present: int) -> NDArray[np.intp]:
    """The bits set, ascending."""
    return np.flatnonzero([present >> bit & 1 for bit in range(KEYS)])


def key_blocks(positions: NDArray[np.int64], codes: Codes) -> Iterator[KeyBlock]:
    """Cut keys of ascending positions in a document into blocks."""
    blocks = positions // KEYS
    for block in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == block)
        present = sum(1 << int(bit) for bit in positions[rows] % KEYS)
        yield KeyBlock(block, present, codes[rows])


def expand(
    starts: NDArray[np.int64], presents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of many rows at once, for every key: the index of its row, and its position.

    Args:
        starts: int64 [rows], where each row's block begins.
        presents: int64 [rows], their bits.
    """
    bits = presents[:, None] >> np.arange(KEYS) & 1
    rows, places = np.nonzero(bits)
    return rows.astype(np.int64), starts[rows] + places
