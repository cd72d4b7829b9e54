"""The sequences of the KV cache: a tree's branches, saved states, and a text read while idle.

The cached tokens are in sequence 0, and a chain is verified there. In a branching tree each leaf
gets a sequence, and each row is in the sequences of all leaves at or below it, so that a row sees
exactly its ancestors. The other sequences are extended only when a tree needs them, and only by
what they lack: each operation scans every cell, and each copied cell costs a node in llama.cpp's
sets. The scratch text has a sequence of its own, so operations name their sequences and never mean
all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.context import LlamaContext
from engines.llama.forward import ForwardPass
from engines.llama.native import TO_END
from engines.llama.threads import MAX_TIMED_ROWS
from engines.target import Floats


def assign_sequences(parents: Sequence[int]) -> list[list[int]]:
    """For each row, the sequences of the leaves at or below it; the first leaf has sequence 0."""
    inner = set(parents)
    row_sequences: list[list[int]] = [[] for _ in parents]
    leaves = 0
    for leaf in range(len(parents)):
        if leaf in inner:
            continue
        row = leaf
        while row >= 0:
            row_sequences[row].append(leaves)
            row = parents[row]
        leaves += 1
    return row_sequences


class KvSequences:
    """The sequences of the cached tokens and of the tree after them.

    Sequence s holds the first `_lengths[s]` cached tokens; the first `_leaves` sequences also hold
    rows of the last tree.
    """

    def __init__(self, memory: Any, sequences: int) -> None:
        self._memory = memory
        self._lengths = [0] * sequences
        self._leaves = 1

    def extend(self, leaves: int, length: int) -> None:
        """Extend sequences 0 … leaves-1 to the first `length` cached tokens, for a tree."""
        self._leaves = leaves
        for sequence in range(1, leaves):
            if self._lengths[sequence] < length:
                native.seq_cp(self._memory, 0, sequence, self._lengths[sequence], length)
                self._lengths[sequence] = length

    def truncate(self, length: int) -> bool:
        """Drop every cell from position `length` on; False if the memory cannot do that."""
        accepted = bool(native.seq_rm(self._memory, 0, length, TO_END))
        accepted = accepted and native.seq_pos_max(self._memory, 0) == length - 1
        for sequence in range(1, len(self._lengths)):
            if sequence < self._leaves or self._lengths[sequence] > length:
                native.seq_rm(self._memory, sequence, length, TO_END)
        self._lengths = [min(held, length) for held in self._lengths]
        self._leaves = 1
        return accepted

    def truncate_chain(self, length: int) -> bool:
        """Drop the cells of a chain, which only sequence 0 holds, from position `length` on."""
        return bool(native.seq_rm(self._memory, 0, length, TO_END))

    def keep_path(
        self, start: int, path: Sequence[int], row_sequences: Sequence[Sequence[int]]
    ) -> None:
        """Reduce a tree whose root is at position `start` to the rows of `path`, in sequence 0."""
        end = start + len(path)
        shared = [0] * len(row_sequences[0])
        for depth, row in enumerate(path):
            for sequence in row_sequences[row]:
                shared[sequence] = depth + 1
        accepted = row_sequences[path[-1]][0]
        for sequence, depth in enumerate(shared):
            native.seq_rm(self._memory, sequence, start + depth, TO_END)
            self._lengths[sequence] = start + depth
        if shared[0] < len(path):
            native.seq_cp(self._memory, accepted, 0, start + shared[0], end)
        self._leaves = 1


class SavedStates:
    """Copies cells of sequence 0 to memory and back.

    A part of a text is copied through another sequence, since llama.cpp saves whole sequences and
    clears the one that it loads.

    Args:
        parts: a sequence that is free whenever a state is saved or loaded; 0 if the memory holds a
            single text, which can only be copied as a whole.
    """

    def __init__(self, context: LlamaContext, parts: int) -> None:
        self._context = context
        self._sequence = parts

    def save(self, start: int, end: int) -> NDArray[np.uint8]:
        """The cells at positions `start` to `end`, as llama.cpp writes them.

        Raises:
            ModelError: llama.cpp cannot save them.
        """
        sequence, memory = self._sequence, self._context.memory
        if sequence:
            native.seq_cp(memory, 0, sequence, start, end)
        try:
            state = np.empty(native.state_size(self._context.handle, sequence), np.uint8)
            saved = native.save_state(self._context.handle, _bytes(state), len(state), sequence)
        finally:
            if sequence:
                native.seq_rm(memory, sequence, 0, TO_END)
        if not saved or saved != len(state):
            raise ModelError("this model's state cannot be saved: reopened chats are read again")
        return state

    def load(self, state: NDArray[np.uint8], start: int, end: int) -> None:
        """Restore what `save` returned to the empty positions `start` to `end`.

        Raises:
            ModelError: llama.cpp refuses it; none of its cells remain.
        """
        sequence, memory = self._sequence, self._context.memory
        loaded = native.load_state(self._context.handle, _bytes(state), len(state), sequence)
        fits = loaded == len(state) and native.seq_pos_max(memory, sequence) == end - 1
        if sequence:
            if fits:
                native.seq_cp(memory, sequence, 0, start, end)
            native.seq_rm(memory, sequence, 0, TO_END)
        elif not fits:
            native.seq_rm(memory, 0, 0, TO_END)
        if not fits:
            raise ModelError("llama.cpp refuses a saved state: the chat is read again")


def _bytes(array: NDArray[np.uint8]) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_uint8))


class ScratchSequence:
    """Evaluates a text in the free cells, on a sequence of its own.

    What the idle model reads must not evict the chat from the KV cache, or the next question would
    wait for a prefill of the whole chat. Implements `engines.state_encoding.StateEncoder`.

    Args:
        free_cells: returns the number of cells that the target does not use.
    """

    def __init__(
        self, context: LlamaContext, forward: ForwardPass, free_cells: Callable[[], int]
    ) -> None:
        # Wider passes would be slightly faster, but the thread tuners learn nothing from them.
        self.max_rows = min(context.rows, MAX_TIMED_ROWS)
        self._memory = context.memory
        self._sequence = context.rows  # lower ones are for the branches of trees
        self._forward = forward
        self._free_cells = free_cells
        self._length = 0
        self._batch = Batch(self.max_rows)
        for row in range(self.max_rows):
            self._batch.place(row, [self._sequence])

    @property
    def room(self) -> int:
        """Length of the longest text that fits now."""
        return self._free_cells()

    def holds(self, text: Sequence[int]) -> bool:
        """Whether all of `text`, the one read last, is still in the cache."""
        return len(text) == self._length

    def read(self, tokens: Sequence[int], start: int) -> Floats:
        """Evaluate `tokens` at position `start` of the text read so far; 0 begins another text.

        Returns:
            their hidden states, float32 [len(tokens), width]: a view, valid until the next call of
            this object or of the target.

        Raises:
            ModelError: llama.cpp could not evaluate them; the text has to be read again.
        """
        if start < self._length:
            self._truncate(start)
        batch, rows = self._batch, len(tokens)
        batch.token[:rows] = tokens
        batch.position[:rows] = np.arange(start, start + rows)
        try:
            states = self._forward.run(batch, rows).hidden
        except ModelError:
            self.drop()
            raise
        self._length = start + rows
        return states

    def drop(self) -> None:
        """Leave all cells to the target."""
        if self._length:
            self._truncate(0)

    def _truncate(self, length: int) -> None:
        native.seq_rm(self._memory, self._sequence, length, TO_END)
        self._length = length
