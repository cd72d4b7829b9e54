"""Forward passes of one llama.cpp context: tokens and their positions in, rows out.

Owns the batches, the threads and the chunk size a pass runs with, and the views over its output.
Refuses to know what is in the KV cache, what is kept of a pass and how a failed one is undone.

The time between two calls of `llama_decode` is paid for every token: batches are allocated once,
rows are views over llama.cpp's own buffers, and plain decoding sets one token and one position.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Any

import numpy as np

from datastores.errors import ModelError
from engines.draft_tree import DraftTree
from engines.llama import native
from engines.llama.context import MICRO_BATCH, Batch, ContextLimits, LlamaContext
from engines.llama.threads import ThreadTuners
from engines.target import Floats, ForwardOutput

MIN_CHUNK, MAX_CHUNK = 16, 512
"""Tokens of a prompt in one pass."""
MIN_CHUNK_S, MAX_CHUNK_S = 0.04, 0.3
"""Seconds for one chunk outside of which the chunk is doubled or halved."""
TARGET_CHUNK_S = 0.15
OPERATIONS_PER_SECOND = 3e10
"""Of one CPU core on a prompt, for the first guess only."""
FINAL_CHUNK = 16
"""Up to this many tokens, one pass that outputs every row is faster than one without outputs and a
second for the last token."""


class PrefillChunkSize:
    """How many tokens of a prompt to read at once: as many as still let Esc feel prompt.

    A power of two, and changed only when it is far off: the chunking of a prompt shows in the last
    bits of its KV cache, so the same prompt should be read in the same chunks again.

    Args:
        parameters: weights of the model: two operations for each, per token.
    """

    def __init__(self, parameters: int, threads: int, on_device: bool) -> None:
        token_s = 2 * parameters / (threads * OPERATIONS_PER_SECOND)
        self.tokens = MAX_CHUNK
        while not on_device and self.tokens > MIN_CHUNK and self.tokens * token_s > TARGET_CHUNK_S:
            self.tokens //= 2

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a chunk; a last one that is shorter is no measure."""
        if tokens < self.tokens:
            return
        if seconds > MAX_CHUNK_S and self.tokens > MIN_CHUNK:
            self.tokens //= 2
        elif seconds < MIN_CHUNK_S and self.tokens < MAX_CHUNK:
            self.tokens *= 2


class OutputViews:
    """Makes `ForwardOutput` over one context's output buffers, anew only when those move.

    Every view holds a reference to `owner`, so that the memory outlives it. Hidden states are of
    length 0 where llama.cpp outputs none.
    """

    def __init__(self, context: Any, vocabulary: int, width: int, owner: object) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._width = width
        self._owner = owner
        self._cache: dict[int, tuple[int, int, ForwardOutput]] = {}

    def first(self, rows: int) -> ForwardOutput:
        """The first `rows` rows of the last decode. Waits for a device to finish."""
        logits = native.get_logits(self._context)
        hidden = native.get_embeddings(self._context)
        cached = self._cache.get(rows)
        # The hidden states follow the logits in memory, so they move with the width of a decode.
        if cached is not None and cached[0] == logits and cached[1] == hidden:
            return cached[2]
        output = ForwardOutput(
            self._view(logits, rows, self._vocabulary), self._view(hidden, rows, self._width)
        )
        self._cache[rows] = (logits, hidden, output)
        return output

    def _view(self, address: int, rows: int, columns: int) -> Floats:
        """float32 [rows, columns] at `address`, not writeable."""
        if not columns:
            return np.empty((rows, 0), np.float32)
        memory: Any = (ctypes.c_float * (rows * columns)).from_address(address)
        memory.owner = self._owner
        view: Floats = np.frombuffer(memory, np.float32).reshape(rows, columns)
        view.flags.writeable = False
        return view


class ForwardPass:
    """Runs `llama_decode`.

    A pass raises ModelError where llama.cpp cannot evaluate it; the caller drops what it has left
    in the cache then.

    Attributes:
        count: passes run so far. A view that an earlier pass returned is no longer valid.
        final_chunk: most tokens at the end of a prompt to evaluate with every row output.
    """

    def __init__(
        self,
        context: LlamaContext,
        limits: ContextLimits,
        chunk_size: PrefillChunkSize,
        tuners: ThreadTuners,
    ) -> None:
        self._context = context.handle
        self._on_device = context.weights.on_device
        self._padded_rows = limits.padded_rows
        self._widest_rows = limits.max_rows
        self._chunk_size = chunk_size
        self._tuners = tuners
        self._hidden_states = limits.hidden_states
        native.set_embeddings(self._context, self._hidden_states)
        self.count = 0
        self.final_chunk = limits.max_rows if limits.padded_rows else FINAL_CHUNK
        rows = max(limits.max_rows, self.final_chunk)
        self._chain_batch, self._tree_batch = Batch(rows), Batch(rows, limits.max_rows)
        self._prefill_batch = Batch(MICRO_BATCH)
        self._prefill_batch.logits[:] = 0
        self._positions = np.arange(limits.context_length + MICRO_BATCH, dtype=np.int32)
        self._views = OutputViews(
            self._context,
            context.weights.vocabulary_size,
            context.weights.width if limits.hidden_states else 0,
            context,
        )

    @property
    def chunk(self) -> int:
        """Tokens of a long prompt to read at once."""
        return self._widest_rows if self._padded_rows else self._chunk_size.tokens

    def cells(self, rows: int) -> int:
        """Cells that a chain of `rows` tokens fills: more where exact mode pads it."""
        return max(rows, self._padded_rows)

    def chain(self, tokens: Sequence[int], start: int) -> ForwardOutput:
        """Evaluate a chain from position `start` on."""
        rows, batch = len(tokens), self._chain_batch
        width = self.cells(rows)
        if width == 1:
            batch.token[0] = tokens[0]
            batch.position[0] = start
        else:
            self._fill(batch, tokens, start)
        self._decode(batch, width)
        return self._views.first(rows)

    def tree(
        self, tree: DraftTree, start: int, row_sequences: Sequence[Sequence[int]]
    ) -> ForwardOutput:
        """Evaluate a tree whose root is at position `start`."""
        batch, rows = self._tree_batch, len(tree)
        batch.token[:rows] = tree.tokens
        batch.position[:rows] = tree.depths()
        batch.position[:rows] += start
        for row, sequences in enumerate(row_sequences):
            batch.place(row, sequences)
        self._decode(batch, rows)
        return self._views.first(rows)

    def prefill(self, tokens: Sequence[int], start: int) -> None:
        """Evaluate a chain from position `start` on, without outputs."""
        self._fill(self._prefill_batch, tokens, start)
        began = perf_counter()
        try:
            native.set_embeddings(self._context, False)
            self._decode(self._prefill_batch, self.cells(len(tokens)))
        finally:
            native.set_embeddings(self._context, self._hidden_states)
        self._chunk_size.observe(len(tokens), perf_counter() - began)

    def run(self, batch: Batch, rows: int) -> ForwardOutput:
        """Evaluate the first `rows` rows of the caller's own `batch`."""
        self._decode(batch, rows)
        return self._views.first(rows)

    def _fill(self, batch: Batch, tokens: Sequence[int], start: int) -> None:
        rows, width = len(tokens), self.cells(len(tokens))
        batch.token[:rows] = tokens
        batch.position[:width] = self._positions[start : start + width]

    def _decode(self, batch: Batch, width: int) -> None:
        """Let llama.cpp evaluate `batch`, on as many threads as the tuners say."""
        self.count += 1
        batch.struct.n_tokens = width
        threads = self._tuners.choose(width)
        native.set_threads(self._context, threads, threads)
        began, began_cpu = perf_counter(), process_time()
        status: int = native.decode(self._context, batch.struct)
        self._tuners.observe(width, perf_counter() - began, process_time() - began_cpu)
        if status:
            raise ModelError(f"llama.cpp could not evaluate {width} tokens (status {status})")
        if self._on_device:
            native.synchronize(self._context)
