"""Reading a text beside the chat: on a spare sequence of the same context, in the cells it leaves.

What the idle model reads must not drive the chat out of the KV cache, or the next question would
wait until the whole chat was read again. Owns that sequence. Refuses to know what is read and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.branches import END
from engines.llama.governor import WIDEST
from engines.llama.passes import Passes
from engines.llama.weights import Context
from engines.target import Floats


class Aside:
    """A text that stands in the context beside what its target holds.

    Args:
        free: cells that the target leaves.
    """

    def __init__(self, context: Context, passes: Passes, free: Callable[[], int]) -> None:
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
