"""Forward passes of one llama.cpp context: tokens and their positions in, rows out.

Every token pays for the time between two calls of `llama_decode`. So batches are allocated once,
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
from engines.llama.batch import MICRO_BATCH, Batch
from engines.llama.context import ContextLimits, LlamaContext
from engines.llama.threads import ThreadTuners
from engines.target import Floats, ForwardOutput

MIN_CHUNK, MAX_CHUNK = 16, 512
"""Minimum and maximum number of prompt tokens in one pass."""
MIN_CHUNK_S, MAX_CHUNK_S = 0.3, 0.75
"""Wall times of a chunk below and above which its size is doubled or halved. Chunks of 16, 32, 64
and 128 tokens take 9.6, 8.6, 6.9 and 6.5 ms a token (Qwen2.5-Coder 1.5B, Q4_K_M, two threads)."""
TARGET_CHUNK_S = 0.15
OPERATIONS_PER_SECOND = 3e10
"""Prefill throughput assumed per CPU core, for the initial chunk size."""
FINAL_CHUNK = 16
"""Number of tokens up to which one pass that outputs all rows is faster than a pass without outputs
and another for the last token."""


class PrefillChunkSize:
    """How many prompt tokens to read at once: as many as keep Esc responsive.

    A power of two, changed only when it is far off: the chunking affects the last bits of the KV
    cache, so the same prompt should be read in the same chunks.

    Args:
        parameters: number of weights of the model, which take two operations each per token.
    """

    def __init__(self, parameters: int, threads: int, on_device: bool) -> None:
        token_s = 2 * parameters / (threads * OPERATIONS_PER_SECOND)
        self.tokens = MAX_CHUNK
        while not on_device and self.tokens > MIN_CHUNK and self.tokens * token_s > TARGET_CHUNK_S:
            self.tokens //= 2

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from the wall time of a chunk; a shorter one is ignored."""
        if tokens < self.tokens:
            return
        if seconds > MAX_CHUNK_S and self.tokens > MIN_CHUNK:
            self.tokens //= 2
        elif seconds < MIN_CHUNK_S and self.tokens < MAX_CHUNK:
            self.tokens *= 2


class OutputViews:
    """Creates `ForwardOutput` views over one context's output buffers, and reuses them.

    Every view references `owner`, so that the memory outlives it. Hidden states have length 0 if
    llama.cpp outputs none.
    """

    def __init__(self, context: Any, vocabulary: int, width: int, owner: object) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._width = width
        self._owner = owner
        self._cache: dict[int, tuple[int, int, ForwardOutput]] = {}

    def first(self, rows: int) -> ForwardOutput:
        """The first `rows` rows of the last decode. Waits for the device."""
        logits = native.get_logits(self._context)
        hidden = native.get_embeddings(self._context)
        cached = self._cache.get(rows)
        # Hidden states follow the logits in memory, so they move with the number of rows.
        if cached is not None and cached[0] == logits and cached[1] == hidden:
            return cached[2]
        output = ForwardOutput(
            self._view(logits, rows, self._vocabulary), self._view(hidden, rows, self._width)
        )
        self._cache[rows] = (logits, hidden, output)
        return output

    def _view(self, address: int, rows: int, columns: int) -> Floats:
        """Read-only float32 [rows, columns] at `address`."""
        if not columns:
            return np.empty((rows, 0), np.float32)
        memory: Any = (ctypes.c_float * (rows * columns)).from_address(address)
        memory.owner = self._owner
        view: Floats = np.frombuffer(memory, np.float32).reshape(rows, columns)
        view.flags.writeable = False
        return view


class ForwardPass:
    """Runs `llama_decode`.

    A pass raises ModelError if llama.cpp cannot evaluate it; the caller then drops its cells.

    Attributes:
        count: passes run so far; each invalidates the views of earlier ones.
        final_chunk: maximum number of tokens at the end of a prompt to evaluate with all rows
            output.
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
        self._workers = context.weights.workers
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
        """Number of prompt tokens to read at once."""
        return self._widest_rows if self._padded_rows else self._chunk_size.tokens

    def cells(self, rows: int) -> int:
        """Number of cells that a chain of `rows` tokens fills, exact mode's padding included."""
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
        """Evaluate the first `rows` rows of the caller's `batch`."""
        self._decode(batch, rows)
        return self._views.first(rows)

    def _fill(self, batch: Batch, tokens: Sequence[int], start: int) -> None:
        rows, width = len(tokens), self.cells(len(tokens))
        batch.token[:rows] = tokens
        batch.position[:width] = self._positions[start : start + width]

    def _decode(self, batch: Batch, width: int) -> None:
        """Evaluate the first `width` rows of `batch`, on the tuned number of threads."""
        self.count += 1
        batch.struct.n_tokens = width
        threads = self._tuners.choose(width)
        native.set_threads(self._context, threads, threads)
        began, began_cpu = perf_counter(), process_time()
        if self._workers is not None:
            self._workers.require()
        status: int = native.decode(self._context, batch.struct)
        self._tuners.observe(width, perf_counter() - began, process_time() - began_cpu)
        if status:
            raise ModelError(f"llama.cpp could not evaluate {width} tokens (status {status})")
        if self._on_device:
            native.synchronize(self._context)
        if self._workers is not None:
            self._workers.require()  # else the pass computed with zeros
