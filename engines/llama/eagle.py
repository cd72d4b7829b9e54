"""The encoder of EAGLE-3 drafters (arXiv 2503.01840, section 3.1).

It fuses the inputs of three of the target's layers into the state that the drafter's block reads,
which runs as any other chained head does.
"""

from __future__ import annotations

from typing import Any

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.target_states import LayerInputs, get_states, view
from engines.target import Floats

ENCODED_ROWS = 32
"""Rows that are fused and read in one pass: llama.cpp outputs the logits of all of them, which take
20 MB for 152,000 tokens."""


class Fusion:
    """Fuses the inputs of the target's layers, in the context of the block.

    Args:
        states: the target's states that the file reads.
        width: length of the fused states.
    """

    def __init__(self, context: Any, states: LayerInputs, width: int) -> None:
        self._context, self._width = context, width
        self._memory: Any = lib.llama_get_memory(context)
        self._batch = Batch(ENCODED_ROWS, width=states.width)
        no_tokens: Any = None
        self._batch.struct.token = no_tokens

    def __call__(self, states: Floats) -> Floats:
        """Fuse `states`, at most `ENCODED_ROWS` rows, to float32 [rows, width]; a copy.

        Raises:
            ModelError: llama.cpp failed.
        """
        rows = len(states)
        self._batch.states[:rows] = states
        # Positions mean nothing here, but llama.cpp checks that they follow those in its cache.
        start = native.seq_pos_max(self._memory, 0) + 1
        self._batch.position[:rows] = range(start, start + rows)
        self._batch.struct.n_tokens = rows
        if status := native.encode(self._context, self._batch.struct):
            raise ModelError(f"llama.cpp could not run the EAGLE-3 drafter (status {status})")
        native.synchronize(self._context)
        return view(get_states(self._context), rows, self._width).copy()
