"""Forward passes of one llama.cpp context: tokens and their positions in, rows out.

Owns the batches, the threads a pass runs on, and the views over what it gave. Refuses to know what
stands in the KV cache, what is kept of a pass and what becomes of one that fails.

The time between two calls of `llama_decode` is paid for every token: batches are allocated once,
rows are views over llama.cpp's own buffers, and plain decoding sets one token and one position.

How many tokens of a prompt to read at once: as many as still let Esc feel prompt.

A chunk is a step of a ladder and moves only when it is far off, because the chunking of a prompt
shows in the last bits of its KV cache: the same prompt should be read the same way again.

One `llama_batch`, allocated once and filled through NumPy.

Owns the memory behind the struct. Refuses to know which tokens or positions go in.

Views over the logits and hidden states that llama.cpp has just written, without a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from datastores.errors import ModelError
from engines.draft_tree import DraftTree
from engines.llama import native
from engines.llama.context import MICRO_BATCH, Batch, ContextLimits, LlamaContext
from engines.llama.threads import ThreadTuner
from engines.target import Floats, ForwardOutput

SMALLEST, LARGEST = 16, 512
TOO_SLOW, TOO_FAST = 0.3, 0.04
"""Seconds for one chunk outside of which the chunk is halved or doubled."""
WANTED = 0.15
OPERATIONS_PER_SECOND = 3e10
"""What one processor core makes of a prompt, for the first guess only."""


class PrefillChunkSize:
    """The present chunk size, in tokens; a power of two."""

    def __init__(self, parameters: int, threads: int, on_device: bool) -> None:
        """Guess from the number of weights: two operations for each weight and token."""
        seconds = 2 * parameters / (threads * OPERATIONS_PER_SECOND)
        self.rows = LARGEST
        while not on_device and self.rows > SMALLEST and self.rows * seconds > WANTED:
            self.rows //= 2

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a chunk; a short last one tells nothing."""
        if rows < self.rows:
            return
        if seconds > TOO_SLOW and self.rows > SMALLEST:
            self.rows //= 2
        elif seconds < TOO_FAST and self.rows < LARGEST:
            self.rows *= 2


class OutputViews:
    """Makes `ForwardOutput` over one context's output buffers, anew only when those move.

    `owner` is held by every view, so that the memory outlives it.
    """

    def __init__(self, context: Any, vocabulary: int, width: int, owner: object) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._width = width
        self._owner = owner
        self._known: dict[int, tuple[int, int, ForwardOutput]] = {}

    def first(self, rows: int) -> ForwardOutput:
        """The first `rows` rows of the last decode. Waits for a device to finish."""
        logits = native.get_logits(self._context)
        hidden = native.get_embeddings(self._context)
        known = self._known.get(rows)
        # The hidden states lie behind the logits, so they move with the width of a decode.
        if known is not None and known[0] == logits and known[1] == hidden:
            return known[2]
        view = ForwardOutput(
            self._view(logits, rows, self._vocabulary), self._view(hidden, rows, self._width)
        )
        self._known[rows] = (logits, hidden, view)
        return view

    def _view(self, address: int, rows: int, columns: int) -> Floats:
        """float32 [rows, columns] at `address`, not writeable."""
        memory: Any = (ctypes.c_float * (rows * columns)).from_address(address)
        memory.owner = self._owner
        view: Floats = np.frombuffer(memory, np.float32).reshape(rows, columns)
        view.flags.writeable = False
        return view


SHORT = 16
"""Up to this many tokens, one pass with every row output beats one more pass for the last token."""


class ForwardPass:
    """Runs `llama_decode`.

    A pass raises ModelError where llama.cpp cannot evaluate it; what it has left in the cache then
    is the caller's to drop.

    Attributes:
        count: passes run so far. A view that an earlier pass returned is no longer valid.
        ending: most tokens of a prompt that are worth having every row output.
    """

    def __init__(
        self,
        context: LlamaContext,
        shape: ContextLimits,
        pace: PrefillChunkSize,
        governor: ThreadTuner,
    ) -> None:
        self._context = context.handle
        self._on_device = context.weights.on_device
        self._padded = shape.padded_rows
        self._pace = pace
        self._governor = governor
        self.count = 0
        self.ending = self._padded or SHORT
        rows = max(shape.max_rows, self.ending)
        self._chain, self._tree = Batch(rows), Batch(rows, shape.max_rows)
        self._silent = Batch(MICRO_BATCH)
        self._silent.logits[:] = 0
        self._ramp = np.arange(shape.context_length + MICRO_BATCH, dtype=np.int32)
        self._views = OutputViews(
            self._context, context.weights.vocabulary_size, context.weights.width, context
        )

    @property
    def chunk(self) -> int:
        """Tokens of a long prompt to read at once."""
        return self._padded or self._pace.rows

    def width(self, rows: int) -> int:
        """Cells that a chain of `rows` tokens fills: more in exact mode, which pads it."""
        return self._padded or rows

    def chain(self, tokens: Sequence[int], start: int) -> ForwardOutput:
        """Evaluate a chain from position `start` on."""
        rows, batch = len(tokens), self._chain
        width = self._padded or rows
        if width == 1:
            batch.token[0] = tokens[0]
            batch.position[0] = start
        else:
            self._fill(batch, tokens, start)
        self._decode(batch, width)
        return self._views.first(rows)

    def tree(self, tree: DraftTree, start: int, carried: Sequence[Sequence[int]]) -> ForwardOutput:
        """Evaluate a tree whose root is at position `start`; `carried` are each row's sequences."""
        batch, rows = self._tree, len(tree)
        batch.token[:rows] = tree.tokens
        batch.position[:rows] = tree.depths()
        batch.position[:rows] += start
        for row, sequences in enumerate(carried):
            batch.place(row, sequences)
        self._decode(batch, rows)
        return self._views.first(rows)

    def read(self, tokens: Sequence[int], start: int) -> None:
        """Evaluate a chain from position `start` on, without outputs."""
        self._fill(self._silent, tokens, start)
        began = perf_counter()
        try:
            native.set_embeddings(self._context, False)
            self._decode(self._silent, self.width(len(tokens)))
        finally:
            native.set_embeddings(self._context, True)
        self._pace.observe(len(tokens), perf_counter() - began)

    def run(self, batch: Batch, rows: int) -> ForwardOutput:
        """Evaluate the first `rows` rows of a batch of the caller's."""
        self._decode(batch, rows)
        return self._views.first(rows)

    def _fill(self, batch: Batch, tokens: Sequence[int], start: int) -> None:
        rows, width = len(tokens), self.width(len(tokens))
        batch.token[:rows] = tokens
        batch.position[:width] = self._ramp[start : start + width]

    def _decode(self, batch: Batch, rows: int) -> None:
        """Have llama.cpp evaluate `batch`, with the governor's threads."""
        self.count += 1
        batch.struct.n_tokens = rows
        threads, began = self._governor.threads, perf_counter()
        status: int = native.decode(self._context, batch.struct)
        if self._governor.observe(rows, perf_counter() - began) != threads:
            threads = self._governor.threads
            native.set_threads(self._context, threads, threads)
        if status:
            raise ModelError(f"llama.cpp could not evaluate {rows} tokens (status {status})")
        if self._on_device:
            native.synchronize(self._context)
