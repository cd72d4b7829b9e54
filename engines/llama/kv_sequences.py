"""Reading a text beside the chat: on a spare sequence of the same context, in the cells it leaves.

What the idle model reads must not drive the chat out of the KV cache, or the next question would
wait until the whole chat was read again. Owns that sequence. Refuses to know what is read and why.

Which llama.cpp sequence holds how much of the context, and how a tree is laid over them.

Owns the sequence operations on the KV cache. Refuses to know tokens, logits or batches.

The context stands in sequence 0. A chain is verified there alone. For a branching tree each leaf
gets a sequence, and each row carries the sequences of all leaves below it, so that a row sees
exactly its ancestors. Sequences other than 0 are brought up to date only when a tree needs them,
and only by what they lack: each operation scans every cell, and each cell copied costs a node in
llama.cpp's sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.context import Batch, LlamaContext
from engines.llama.forward import ForwardPass
from engines.llama.native import ALL, END
from engines.llama.threads import WIDEST
from engines.target import Floats


def lay_out(parents: Sequence[int]) -> list[list[int]]:
    """For each row, the sequences of the leaves at or below it; the first leaf is sequence 0."""
    inner = set(parents)
    carried: list[list[int]] = [[] for _ in parents]
    leaves = 0
    for leaf in range(len(parents)):
        if leaf in inner:
            continue
        row = leaf
        while row >= 0:
            carried[row].append(leaves)
            row = parents[row]
        leaves += 1
    return carried


class KvSequences:
    """The sequences of one context. Sequence s holds the first `_held[s]` tokens of the context."""

    def __init__(self, memory: Any, sequences: int, chains_only: bool) -> None:
        self._memory = memory
        self._held = [0] * sequences
        # Recurrent memory knows no "all sequences"; it is never branched either.
        self._everyone = 0 if chains_only else ALL

    def grow(self, leaves: int, length: int) -> None:
        """Let sequences 0 … leaves-1 hold the first `length` tokens of the context."""
        for sequence in range(1, leaves):
            if self._held[sequence] < length:
                native.seq_cp(self._memory, 0, sequence, self._held[sequence], length)
                self._held[sequence] = length

    def cut(self, length: int) -> bool:
        """Drop every cell from position `length` on. False where the memory cannot do that."""
        self._held = [min(held, length) for held in self._held]
        return bool(native.seq_rm(self._memory, self._everyone, length, END))

    def keep_chain(self, length: int) -> bool:
        """Drop what sequence 0 holds from position `length` on, after a chain."""
        return bool(native.seq_rm(self._memory, 0, length, END))

    def keep_path(self, start: int, path: Sequence[int], carried: Sequence[Sequence[int]]) -> None:
        """Make sequence 0 hold the accepted path, which begins at position `start`."""
        end = start + len(path)
        native.seq_rm(self._memory, ALL, end, END)
        shared = [0] * len(carried[0])
        for depth, row in enumerate(path):
            for sequence in carried[row]:
                shared[sequence] = depth + 1
        for sequence, depth in enumerate(shared):
            if depth < len(path):
                native.seq_rm(self._memory, sequence, start + depth, end)
            self._held[sequence] = start + depth
        if shared[0] < len(path):
            winner = carried[path[-1]][0]
            native.seq_cp(self._memory, winner, 0, start + shared[0], end)


class ScratchSequence:
    """A text that stands in the context beside what its target holds.

    Args:
        free: cells that the target leaves.
    """

    def __init__(self, context: LlamaContext, passes: ForwardPass, free: Callable[[], int]) -> None:
        # Wider passes would be a little faster, but teach the governor nothing.
        self.max_rows = min(context.rows, WIDEST)
        self._memory = context.memory
        self._sequence = context.rows  # those below serve the branches of trees
        self._passes = passes
        self._free = free
        self._held = 0
        self._batch = Batch(self.max_rows)
        for row in range(self.max_rows):
            self._batch.place(row, [self._sequence])

    @property
    def room(self) -> int:
        """The longest text that fits now."""
        return self._free()

    def holds(self, text: Sequence[int]) -> bool:
        """Whether `text`, the one read last, still stands here whole."""
        return len(text) == self._held

    def read(self, tokens: Sequence[int], start: int) -> Floats:
        """Evaluate `tokens` as positions from `start` on of the text read before; 0 begins another.

        Returns:
            float32 [len(tokens), width], their states; a view, valid until the next call of this or
            of the target.

        Raises:
            ModelError: llama.cpp could not evaluate them; the text has to be begun anew.
        """
        if start < self._held:
            self._cut(start)
        batch, rows = self._batch, len(tokens)
        batch.token[:rows] = tokens
        batch.position[:rows] = np.arange(start, start + rows)
        try:
            states = self._passes.run(batch, rows).hidden
        except ModelError:
            self.drop()
            raise
        self._held = start + rows
        return states

    def drop(self) -> None:
        """Leave all cells to the target."""
        if self._held:
            self._cut(0)

    def _cut(self, length: int) -> None:
        native.seq_rm(self._memory, self._sequence, length, END)
        self._held = length
