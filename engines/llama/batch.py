"""One `llama_batch`, allocated once and filled through NumPy.

Owns the memory behind the struct. Refuses to know which tokens or positions go in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as lib


class Batch:
    """Up to `capacity` rows. All rows begin in sequence 0; `logits` decides which rows are output.

    Attributes:
        token, position: int32 [capacity].
        logits: int8 [capacity].
        struct: the C struct over the same memory; `struct.n_tokens` is the next width.
    """

    def __init__(self, capacity: int, sequences: int = 1) -> None:
        self.token = np.zeros(capacity, np.int32)
        self.position = np.zeros(capacity, np.int32)
        self.logits = np.ones(capacity, np.int8)
        self._counts = np.ones(capacity, np.int32)
        self._ids = np.zeros((capacity, sequences), np.int32)
        row_bytes = self._ids.strides[0]
        self._pointers = self._ids.ctypes.data + row_bytes * np.arange(capacity, dtype=np.uint64)
        self.struct = lib.llama_batch(
            n_tokens=0,
            token=_pointer(self.token, ctypes.c_int32),
            pos=_pointer(self.position, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self.logits, ctypes.c_int8),
        )

    def place(self, row: int, sequences: Sequence[int]) -> None:
        """Put `row` into several sequences."""
        self._counts[row] = len(sequences)
        self._ids[row, : len(sequences)] = sequences


def _pointer(array: np.ndarray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
