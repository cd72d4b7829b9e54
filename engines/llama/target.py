"""A llama.cpp context as a `Target`: prefill, verify, commit, rewind.

Keeps the KV cache equal to the list of cached tokens: further cells exist only from a pass until
its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ModelError
from datastores.tokens import common_prefix
from engines.draft_tree import DraftTree
from engines.llama.checkpoint import Checkpoint
from engines.llama.context import ContextLimits, LlamaContext
from engines.llama.forward import ForwardPass, PrefillChunkSize
from engines.llama.kv_sequences import (
    KvSequences,
    SavedStates,
    ScratchSequence,
    assign_sequences,
)
from engines.llama.parked_texts import ParkedText, ParkedTexts
from engines.llama.prediction_heads import PredictionHeads
from engines.llama.threads import ThreadTuners
from engines.target import ForwardOutput, require_prompt_fits, require_tree_fits

STATE_BLOCK = 256
"""Tokens whose state is saved at a time, which takes milliseconds: it must not delay a question."""


class LlamaTarget:
    """Implements `Target`, `ParkingTarget` and `SavableTarget` of `engines.target`.

    Attributes:
        heads: the model's prediction heads, which get its states; None if it runs without.
        heads_problem: why its heads do not run; empty if it has none.
        scratch: evaluates other texts between two answers, next to the cached tokens; None if the
            memory holds a single text.
    """

    def __init__(
        self,
        context: LlamaContext,
        limits: ContextLimits,
        chunk_size: PrefillChunkSize,
        tuners: ThreadTuners,
        fingerprint: str,
        heads: PredictionHeads | None = None,
        heads_problem: str = "",
    ) -> None:
        self.fingerprint = fingerprint
        self.weights = context.weights
        self.vocabulary_size = context.weights.vocabulary_size
        self.width = context.weights.width if limits.hidden_states else 0
        self.context_length = limits.context_length
        self.max_rows = limits.max_rows
        self.chains_only = limits.chains_only
        self._snapshots = limits.snapshots
        self.rollback_rows = limits.rollback_rows
        self.padded_rows = limits.padded_rows
        self.heads = heads
        self.heads_problem = heads_problem
        self._text: list[int] = []
        self._in_sync = True  # whether the cache holds exactly `_text`
        self._cuttable = 0  # of a recurrent memory: number of last tokens with snapshots
        self._tree: DraftTree | None = None
        self._row_sequences: list[list[int]] = []
        self._last_row: ForwardOutput | None = None
        self._last_row_pass = 0
        self._forward = ForwardPass(context, limits, chunk_size, tuners)
        self._sequences = KvSequences(context.memory, limits.max_rows)
        self._checkpoint = Checkpoint(context.handle, context.memory)
        self._parked = ParkedTexts()
        self.state_key = f"{fingerprint} {context.layout} w{limits.padded_rows}"
        self.state_block = STATE_BLOCK if context.has_scratch else 0
        self._states = SavedStates(context, context.rows if context.has_scratch else 0)
        self.scratch = (
            ScratchSequence(context, self._forward, self._free_cells)
            if context.has_scratch
            else None
        )

    @property
    def tokens(self) -> Sequence[int]:
        """The cached token ids, in order. A live view: copy it to keep it."""
        return self._text

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`. A view: every later pass of this context, the scratch sequence's
        included, invalidates it."""
        if self._last_row is None or self._last_row_pass != self._forward.count:
            raise RuntimeError("last_row is valid only right after a finished prefill")
        return self._last_row

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`.

        A long prompt is read in chunks without outputs, except for its end.

        Raises:
            ContextOverflowError: `tokens` is longer than the context.
            ModelError: llama.cpp could not evaluate a chunk; the cache holds those before it.
        """
        require_prompt_fits(self, len(tokens))
        if self.scratch is not None:
            self.scratch.drop()
        self._restore_nearest(tokens)
        # The last token is always evaluated, for `last_row`.
        self.rewind(min(common_prefix(self._text, tokens), len(tokens) - 1))
        while len(tokens) - len(self._text) > self._forward.final_chunk:
            start = len(self._text)
            chunk = tokens[start : min(start + self._forward.chunk, len(tokens) - 1)]
            with self._evaluating():
                self._forward.prefill(chunk, start)
            self._append(chunk)
            yield len(self._text)
        chunk = tokens[len(self._text) :]
        with self._evaluating():
            rows = self._forward.chain(chunk, len(self._text))
        self._append(chunk)
        self._last_row = ForwardOutput(rows.logits[-1:], rows.hidden[-1:])
        self._last_row_pass = self._forward.count
        yield len(self._text)

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`.

        Raises:
            ContextOverflowError: the tree does not fit after the cached tokens.
            ModelError: llama.cpp could not evaluate it; the cache is unchanged, or shorter if it
                cannot be rewound.
        """
        if not self._in_sync:
            self._resync()
        rows, start = len(tree.tokens), len(self._text)
        require_tree_fits(self, rows)
        row_sequences = [] if rows == 1 or tree.is_chain() else assign_sequences(tree.parents)
        if not row_sequences:
            if rows - 1 > self.rollback_rows:
                self._checkpoint.save(start)
            with self._evaluating():
                output = self._forward.chain(tree.tokens, start)
        elif self.chains_only:
            raise ValueError("this model verifies chains only")
        else:
            self._sequences.extend(len(row_sequences[0]), start)
            with self._evaluating():
                output = self._forward.tree(tree, start, row_sequences)
        self._tree, self._row_sequences = tree, row_sequences
        return output

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`.

        Raises:
            ModelError: llama.cpp could not re-evaluate them; the cache is as it was before
                `verify`, or shorter.
        """
        tree, start = self._tree, len(self._text)
        if tree is None:
            raise RuntimeError("commit without a verified tree")
        self._tree = None
        kept = [tree.tokens[row] for row in path]
        dropped = self._forward.cells(len(tree.tokens)) - len(path)
        if self._row_sequences:
            self._sequences.keep_path(start, path, self._row_sequences)
        elif dropped > self.rollback_rows:
            self._go_back(start)
            self._reevaluate(kept)
            return
        elif dropped:
            self._sequences.truncate_chain(start + len(path))
        self._give_states(path)
        self._record(kept, dropped)

    def rewind(self, length: int) -> None:
        """Truncate the cache to its first `length` tokens; if its memory cannot do that, to an
        earlier checkpoint or to none."""
        self._last_row = None
        if length == len(self._text) and self._in_sync:
            return
        self._truncate(length)

    def park(self) -> None:
        """See `ParkingTarget.park`.

        Raises:
            ModelError: llama.cpp cannot save the text.
        """
        if not self._in_sync:
            self._resync()
        if self.state_block and not self._parked.holds(self._text):
            state = self.save_state(0, len(self._text))
            self._parked.add(ParkedText(self._text.copy(), state))

    def drop_parked(self) -> None:
        """See `ParkingTarget.drop_parked`."""
        self._parked.clear()

    def cached_prefix(self, tokens: Sequence[int]) -> int:
        """See `ParkingTarget.cached_prefix`."""
        return max(common_prefix(self._text, tokens), self._parked.nearest(tokens)[1])

    def save_state(self, start: int, end: int) -> NDArray[np.uint8]:
        """See `SavableTarget.save_state`."""
        if not self._in_sync:
            self._resync()
        if not self.state_block and (start, end) != (0, len(self._text)):
            raise ValueError("this model's memory is saved as a whole")
        if self.scratch is not None:
            self.scratch.drop()
        return self._states.save(start, end)

    def load_state(self, tokens: Sequence[int], state: NDArray[np.uint8]) -> None:
        """See `SavableTarget.load_state`."""
        start, end = len(self._text), len(self._text) + len(tokens)
        require_prompt_fits(self, end)
        if start and not self.state_block:
            raise ValueError("this model's memory is loaded as a whole")
        if self.scratch is not None:
            self.scratch.drop()
        self._truncate(start)
        self._states.load(state, start, end)
        self._record(tokens, dropped=1)
        self._last_row = None

    def _restore_nearest(self, tokens: Sequence[int]) -> None:
        """Continue from a parked text if its common prefix with `tokens` is longer."""
        parked, shared = self._parked.nearest(tokens)
        if shared > common_prefix(self._text, tokens):
            self._truncate(0)
            self.load_state(parked.tokens, parked.state)
            self._parked.use(parked)

    def _free_cells(self) -> int:
        return self.context_length - len(self._text)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Runs one forward pass; if it fails, drops the cells that it left."""
        self._in_sync = False
        try:
            yield
        except ModelError:
            self._truncate(len(self._text))
            raise

    def _append(self, tokens: Sequence[int]) -> None:
        """Record `tokens`, which were just evaluated as a chain."""
        padding = self._forward.cells(len(tokens)) - len(tokens)
        if padding:
            self._sequences.truncate_chain(len(self._text) + len(tokens))
        self._give_states(range(len(tokens)))
        self._record(tokens, padding)

    def _give_states(self, rows: Sequence[int]) -> None:
        """Give the heads the states of the last pass's `rows`, before these are recorded."""
        if self.heads is not None:
            self.heads.take(len(self._text), rows)

    def _record(self, tokens: Sequence[int], dropped: int) -> None:
        """Record `tokens` of the last pass, whose other rows (`dropped`) are no longer cached."""
        self._text.extend(tokens)
        self._in_sync = True
        self._cuttable = 0 if dropped else min(self.rollback_rows, len(tokens) - 1)

    def _reevaluate(self, tokens: Sequence[int]) -> None:
        """Append tokens that were verified before, in one pass without outputs."""
        with self._evaluating():
            self._forward.prefill(tokens, len(self._text))
        self._append(tokens)

    def _can_cut(self, length: int) -> bool:
        """Whether the memory can forget the tokens after the first `length`.

        llama.cpp does not check that snapshots exist only of the last pass, if it succeeded, and
        only for one rollback.
        """
        if self._snapshots is None:
            return True
        return self._in_sync and len(self._text) - length <= self._cuttable

    def _go_back(self, length: int) -> None:
        """Truncate the cache to exactly `length` tokens, re-evaluating those after a checkpoint.

        Raises:
            ModelError: too many would have to be re-evaluated; the cache is shorter.
        """
        tokens = self._text[:length]
        self._truncate(length)
        missing = tokens[len(self._text) :]
        if len(missing) > self._forward.chunk:
            raise ModelError("this model's cache cannot be rewound: the chat has to be read again")
        if missing:
            self._reevaluate(missing)

    def _truncate(self, length: int) -> None:
        """Drop the cells from position `length` on, or more if the cache cannot be rewound."""
        if not (self._can_cut(length) and self._sequences.truncate(length)):
            self._checkpoint.truncate(length)
            length = max(self._checkpoint.length, 0)
            if not self._checkpoint.restore():
                length = 0
                self._sequences.truncate(0)
        self._checkpoint.truncate(length)
        self._cuttable = 0
        del self._text[length:]
        if self.heads is not None:
            self.heads.truncate(length)
        self._tree = None
        self._in_sync = True

    def _resync(self) -> None:
        """Drop cells that were never recorded in `_text`, as after an interrupt."""
        self._go_back(len(self._text))
