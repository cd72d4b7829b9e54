"""Batches of rows for llama.cpp, and passes over them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native

MICRO_BATCH = 512
"""Maximum number of rows that llama.cpp computes at once: its own default."""


class Batch:
    """One `llama_batch` of up to `capacity` rows, allocated once and filled through NumPy.

    Every row is in sequence 0 until `place` puts it elsewhere.

    Attributes:
        token: int32 [capacity].
        position: int32 [positions · capacity]; only states may have several each, all first ones
            first.
        logits: int8 [capacity], 1 for rows whose logits and hidden state are output.
        states: float32 [capacity, width], inputs along with the tokens; [0, 0] if there are none.
        struct: the C struct over the same memory; `struct.n_tokens` is the width of the next pass.
    """

    def __init__(
        self, capacity: int, sequences: int = 1, width: int = 0, positions: int = 1
    ) -> None:
        self.token = np.zeros(capacity, np.int32)
        self.position = np.zeros(positions * capacity, np.int32)
        self.logits = np.ones(capacity, np.int8)
        self.states = np.zeros((capacity if width else 0, width), np.float32)
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
        if width:
            address: Any = _pointer(self.states, ctypes.c_float)
            self.struct.embd = address

    def fill(self, texts: Iterable[Sequence[int]]) -> None:
        """Hold whole texts, each in a sequence of its own, for the next pass."""
        row = 0
        for sequence, tokens in enumerate(texts):
            rows = slice(row, row + len(tokens))
            self.token[rows], self.position[rows] = tokens, range(len(tokens))
            for row in range(rows.start, rows.stop):
                self.place(row, (sequence,))
            row = rows.stop
        self.struct.n_tokens = row

    def place(self, row: int, sequences: Sequence[int]) -> None:
        """Put `row` into exactly `sequences`."""
        self._counts[row] = len(sequences)
        self._ids[row, : len(sequences)] = sequences


def _pointer(array: np.ndarray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def split_into_passes(texts: Iterable[list[int]], max_texts: int) -> Iterator[list[list[int]]]:
    """Group `texts`, in order, so that each group fits into one pass."""
    group: list[list[int]] = []
    for text in texts:
        if group and (len(group) == max_texts or sum(map(len, group)) + len(text) > MICRO_BATCH):
            yield group
            group = []
        group.append(text)
    if group:
        yield group


def evaluate(context: Any, batch: Batch, path: Path) -> None:
    """Run one pass, and wait for it.

    Raises:
        ModelError: llama.cpp cannot run the model, which is named by `path`.
    """
    native.clear_errors()
    if native.decode(context, batch.struct):
        raise ModelError(f"{path} cannot be run: {native.first_error()}")
    native.synchronize(context)
