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
from engines.llama.views import Views
from engines.llama.weights import Context
from engines.target import Floats


class Aside:
    """A text that stands in the context beside what its target holds.

    Args:
        rows: most tokens of one pass; the number of the spare sequence too, as sequences below
            serve trees.
        free: cells that the target leaves.
    """

    def __init__(self, context: Context, rows: int, views: Views, free: Callable[[], int]) -> None:
        self.max_rows = rows
        self._context = context
        self._sequence = rows
        self._views = views
        self._free = free
        self._held = 0
        self._batch = Batch(rows)
        for row in range(rows):
            self._batch.place(row, [rows])

    @property
    def room(self) -> int:
        """The longest text that fits now."""
        return self._free()

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
        batch.struct.n_tokens = rows
        status = native.decode(self._context.handle, batch.struct)
        if status:
            self.drop()
            raise ModelError(f"llama.cpp could not evaluate {rows} tokens (status {status})")
        self._held = start + rows
        return self._views.first(rows).hidden

    def drop(self) -> None:
        """Leave all cells to the target."""
        if self._held:
            self._cut(0)

    def _cut(self, length: int) -> None:
        native.seq_rm(self._context.memory, self._sequence, length, END)
        self._held = length
