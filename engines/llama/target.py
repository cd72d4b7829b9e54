"""A llama.cpp context as a `Target`: prefill, verify, commit, rewind.

Owns the KV cache and the record of what stands in it. Refuses to know text, chats, files or which
drafts are worth verifying.

The time between two calls of `llama_decode` is paid for every token: batches are allocated once,
rows are views over llama.cpp's own buffers, and plain decoding sets one token and one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from datastores.errors import ContextOverflowError, ModelError
from engines.llama import native
from engines.llama.aside import Aside
from engines.llama.batch import Batch
from engines.llama.branches import Branches, lay_out
from engines.llama.governor import Governor
from engines.llama.pace import Pace
from engines.llama.views import Views
from engines.llama.weights import MICRO_BATCH, Context
from engines.target import Rows
from engines.tree import DraftTree

SHORT = 16
"""Up to this many tokens, one pass with every row output beats one more pass for the last token."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a context can do; `engines.llama.abilities` finds out.

    Attributes:
        context_length: most tokens the cache may hold.
        max_rows: widest tree, the root included.
        chains_only: no branching (exact mode, recurrent memory).
        padded_rows: in exact mode the width of every decode; else 0.
    """

    context_length: int
    max_rows: int
    chains_only: bool
    padded_rows: int = 0


class LlamaTarget:
    """Implements `engines.target.Target`.

    Attributes:
        aside: reads other texts between two answers, without loss of what stands in the cache; None
            where the model's memory holds one text only.
    """

    def __init__(
        self, context: Context, shape: Shape, pace: Pace, governor: Governor, fingerprint: str
    ) -> None:
        self._context = context.handle
        self._on_device = context.weights.on_device
        self._pace = pace
        self._governor = governor
        self.fingerprint = fingerprint
        self.vocabulary_size = context.weights.vocabulary_size
        self.width = context.weights.width
        self.context_length = shape.context_length
        self.max_rows = shape.max_rows
        self.chains_only = shape.chains_only
        self.padded_rows = shape.padded_rows
        self._tokens: list[int] = []
        self._settled = True
        self._pending: DraftTree | None = None
        self._carried: list[list[int]] | None = None
        self._tail: Rows | None = None
        rows = max(shape.max_rows, shape.padded_rows, SHORT)
        self._chain, self._tree = Batch(rows), Batch(rows, shape.max_rows)
        self._reading = Batch(MICRO_BATCH)
        self._reading.logits[:] = 0
        self._ramp = np.arange(shape.context_length + MICRO_BATCH, dtype=np.int32)
        self._branches = Branches(context.memory, shape.max_rows, shape.chains_only)
        self._views = Views(self._context, self.vocabulary_size, self.width, context)
        self.aside = Aside(context, self._views, self._pass, self._free) if context.spare else None

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids standing in the KV cache, in order. A live view: copy to keep."""
        return self._tokens

    @property
    def tail(self) -> Rows:
        """The row of the last prefilled token (one row); valid until the next call."""
        if self._tail is None:
            raise RuntimeError("there is a tail only right after a finished prefill")
        return self._tail

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Make the cache hold exactly `tokens`; see `Target.prefill`.

        A long prompt passes without outputs, in chunks, but for its last token.

        Raises:
            ContextOverflowError: `tokens` is longer than the context.
            ModelError: llama.cpp refuses a chunk; the cache holds what was read before it.
        """
        if not tokens:
            raise ValueError("prefill needs at least one token")
        if len(tokens) > self.context_length:
            raise ContextOverflowError(
                f"the prompt has {len(tokens)} tokens and the context {self.context_length}:"
                " shorten the prompt or raise the context length"
            )
        if self.aside is not None:
            self.aside.drop()
        self.rewind(_common_prefix(self._tokens, tokens))
        while len(tokens) - len(self._tokens) > (self.padded_rows or SHORT):
            start = len(self._tokens)
            self._read(tokens[start : min(start + self._chunk, len(tokens) - 1)])
            yield len(self._tokens)
        self._tail = self._read_last(tokens[len(self._tokens) :])
        yield len(self._tokens)

    def verify(self, tree: DraftTree) -> Rows:
        """Evaluate every row of `tree` in one forward pass; see `Target.verify`.

        Raises:
            ContextOverflowError: the tree does not fit behind the cached tokens.
            ModelError: llama.cpp could not evaluate it; the cache is as it was before.
        """
        if not self._settled:
            self._settle()
        rows, start = len(tree.tokens), len(self._tokens)
        if start + rows > self.context_length or rows > self.max_rows:
            self._refuse(rows)
        chain = rows == 1 or tree.is_chain()
        if self.chains_only and not chain:
            raise ValueError("this model verifies chains only")
        self._pending, self._settled = tree, False
        if chain:
            return self._run(self._chain, tree.tokens, start)
        return self._verify_branches(tree, start)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the verified rows that stand on `path` (root first), drop the rest."""
        tree, start = self._pending, len(self._tokens)
        if tree is None:
            raise RuntimeError("commit without a verified tree")
        if self._carried is not None:
            self._branches.keep_path(start, path, self._carried)
        elif len(path) < len(tree.tokens) or self.padded_rows:
            self._branches.keep_chain(start + len(path))
        self._tokens.extend([tree.tokens[row] for row in path])
        self._pending = self._carried = None
        self._settled = True

    def rewind(self, length: int) -> None:
        """Cut the cache to its first `length` tokens; to none where its memory keeps no past."""
        self._tail = None
        if length == len(self._tokens) and self._settled:
            return
        self._drop_after(length)

    def _free(self) -> int:
        return self.context_length - len(self._tokens)

    @property
    def _chunk(self) -> int:
        return self.padded_rows or self._pace.rows

    def _drop_after(self, length: int) -> None:
        """Empty the cache from position `length` on, or wholly where its memory keeps no past."""
        if not self._branches.cut(length):
            length = 0
            self._branches.cut(0)
        del self._tokens[length:]
        self._pending = self._carried = None
        self._settled = True

    def _settle(self) -> None:
        """Drop what was evaluated and never made part of `tokens`: an interrupt came between."""
        length = len(self._tokens)
        self._drop_after(length)
        if len(self._tokens) < length:
            raise ModelError("this model cannot step back: the chat has to be read again")

    def _refuse(self, rows: int) -> None:
        if rows > self.max_rows:
            raise ValueError(f"a tree of {rows} rows; this model takes {self.max_rows}")
        raise ContextOverflowError(
            f"the context of {self.context_length} tokens is full: start a new chat or raise the"
            " context length"
        )

    def _verify_branches(self, tree: DraftTree, start: int) -> Rows:
        batch, rows = self._tree, len(tree.tokens)
        self._carried = carried = lay_out(tree.parents)
        self._branches.grow(len(carried[0]), start)
        batch.token[:rows] = tree.tokens
        batch.position[:rows] = tree.depths()
        batch.position[:rows] += start
        for row, sequences in enumerate(carried):
            batch.place(row, sequences)
        self._decode(batch, rows)
        return self._views.first(rows)

    def _run(self, batch: Batch, tokens: Sequence[int], start: int) -> Rows:
        """Decode a chain from position `start` and return its rows."""
        rows = len(tokens)
        width = self.padded_rows or rows
        if width == 1:
            batch.token[0] = tokens[0]
            batch.position[0] = start
        else:
            batch.token[:rows] = tokens
            batch.position[:width] = self._ramp[start : start + width]
        self._decode(batch, width)
        return self._views.first(rows)

    def _read(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the cache, without outputs."""
        batch, rows, start = self._reading, len(tokens), len(self._tokens)
        width = self.padded_rows or rows
        batch.token[:rows] = tokens
        batch.position[:width] = self._ramp[start : start + width]
        began = perf_counter()
        try:
            native.set_embeddings(self._context, False)
            self._decode(batch, width)
        finally:
            native.set_embeddings(self._context, True)
        self._pace.observe(rows, perf_counter() - began)
        self._append(tokens, start, width)

    def _read_last(self, tokens: Sequence[int]) -> Rows:
        """Append the last few `tokens`, with outputs, and return the last one's row."""
        start, rows = len(self._tokens), len(tokens)
        view = self._run(self._chain, tokens, start)
        self._append(tokens, start, self.padded_rows or rows)
        return Rows(view.logits[-1:], view.hidden[-1:])

    def _append(self, tokens: Sequence[int], start: int, width: int) -> None:
        if width > len(tokens):
            self._branches.keep_chain(start + len(tokens))
        self._tokens.extend(tokens)
        self._settled = True

    def _decode(self, batch: Batch, rows: int) -> None:
        """One forward pass. On failure the cache holds what it held before."""
        self._settled = False
        status = self._pass(batch, rows)
        if status:
            self._drop_after(len(self._tokens))
            raise ModelError(f"llama.cpp could not evaluate {rows} tokens (status {status})")

    def _pass(self, batch: Batch, rows: int) -> int:
        """Have llama.cpp evaluate `batch` with the governor's threads; its status, 0 if all is
        well."""
        batch.struct.n_tokens = rows
        threads, began = self._governor.threads, perf_counter()
        status: int = native.decode(self._context, batch.struct)
        if self._governor.observe(rows, perf_counter() - began) != threads:
            threads = self._governor.threads
            native.set_threads(self._context, threads, threads)
        if self._on_device and not status:
            native.synchronize(self._context)
        return status


def _common_prefix(cached: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the shared prefix, short of `wanted`'s last token, which is always evaluated."""
    limit = min(len(cached), len(wanted) - 1)
    for index in range(limit):
        if cached[index] != wanted[index]:
            return index
    return limit
