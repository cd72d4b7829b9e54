"""Prediction heads: small networks that draft a model's next tokens from its states.

They run in a llama.cpp context of their own. The target hands over states as it commits tokens
(`take`), and cuts them off when it rewinds (`truncate`). Nothing is evaluated then, so the first
token of an answer never waits for the heads. How they draft is in `engines.llama.chained_heads`
and `engines.llama.dflash`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.context import LlamaContext, Weights, context_parameters, free_with
from engines.llama.native import TO_END
from engines.llama.target_states import TargetStates
from engines.target import Floats

MAX_UNREAD = 1024
"""Maximum number of states kept for unread tokens. The heads skip older ones: drafts get slightly
worse, but no answer waits for a long text to be read twice."""
DROPPED = 256
"""Minimum number of states to skip at once."""
READ_ROWS = 128
"""Number of tokens read in one pass."""


class UnreadStates:
    """The target's states that the heads have not read yet.

    Args:
        lag: 1 for heads that read a state together with the token after it, 0 for those that read
            it by itself.

    Attributes:
        first: position at which the first state is read.
        count: their number; with a lag, the root's is included.
    """

    def __init__(self, width: int, lag: int) -> None:
        self._rows = np.zeros((MAX_UNREAD, width), np.float32)
        self._unknown = np.zeros(width, np.float32)  # llama.cpp's before the first token
        self._dropped = self._unknown
        self._lag = lag
        self.first = 0
        self.count = lag

    @property
    def root(self) -> int:
        """Position of the token after the last one whose state is known."""
        return self.first + self.count - self._lag

    @property
    def rows(self) -> Floats:
        """The states, float32 [count, width]. A view."""
        return self._rows[: self.count]

    def append(self, states: Floats) -> None:
        """Add the states of the next tokens; drop the oldest if there are too many.

        Dropping moves the others, so at least `DROPPED` are dropped at once.
        """
        excess = self.count + len(states) - MAX_UNREAD
        if excess > 0:
            self.drop(min(max(excess, DROPPED), self.count))
        self._rows[self.count : self.count + len(states)] = states
        self.count += len(states)

    def drop(self, count: int) -> None:
        """Drop the first `count` states, read or skipped."""
        if not count:
            return
        self._dropped = self._rows[count - 1].copy()
        self._rows[: self.count - count] = self._rows[count : self.count].copy()
        self.first += count
        self.count -= count

    def restart(self, root: int) -> None:
        """Start over with the state of the token at `root`, which comes next."""
        self.first, self.count, self._dropped = root + self._lag, 0, self._unknown

    def truncate(self, length: int) -> None:
        """Keep the states of the first `length` tokens.

        Of those dropped before, only the last is still known; zeros stand in for the others.
        """
        if length >= self.first:
            self.count = min(self.count, length - self.first + self._lag)
            return
        last = self._dropped if length == self.first - 1 else self._unknown
        self.restart(length - self._lag)
        self.append(last[None][: self._lag])


class PredictionHeads(ABC):
    """A model's heads. Implements `engines.drafters.model_drafter.DraftingModel`.

    Args:
        weights: the target's own, or those of a file of heads.
        target: the context whose states they read.
        context: theirs, of `open_beside`; it is freed with them.
        given: the target's states that they read.
        lag: see `UnreadStates`.
        length: length of the longest text.
    """

    max_depth: int
    draft_vocabulary: NDArray[np.int64] | None = None

    def __init__(
        self,
        weights: Weights,
        target: LlamaContext,
        context: Any,
        given: TargetStates,
        *,
        lag: int,
        length: int,
    ) -> None:
        free_with(self, lib.llama_free, context, weights, target)
        self.context_length = length
        self._vocabulary_size = weights.vocabulary_size
        self._on_device = weights.on_device
        self._target, self._context = target, context
        self._memory: Any = lib.llama_get_memory(context)
        self._given = given
        self._unread = UnreadStates(given.width, lag)

    def take(self, start: int, rows: Sequence[int]) -> None:
        """Copy states of the target's last pass.

        Its `rows` hold the tokens at positions `start`, `start` + 1, …, which are now cached.
        """
        unread = self._unread
        if start != unread.root:
            self._remove(0)
            unread.restart(start)
        first = unread.first
        unread.append(self._given.rows(rows))
        if unread.first != first:
            self._remove(0)

    def truncate(self, length: int) -> None:
        """Follow the target, whose cache was cut to its first `length` tokens."""
        if length < self._unread.first:
            self._remove(length)
        self._unread.truncate(length)

    @abstractmethod
    def begin(self, tokens: Sequence[int]) -> int:
        """See `DraftingModel.begin`."""

    @abstractmethod
    def read(self, count: int) -> None:
        """See `DraftingModel.read`."""

    @abstractmethod
    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """See `DraftingModel.next_rows`."""

    def _remove(self, position: int) -> None:
        """Drop the heads' own cells from `position` on."""
        native.seq_rm(self._memory, 0, position, TO_END)

    def _run(self, batch: Batch) -> None:
        """Evaluate a batch on as many threads as the target's tuners chose: other programs compete
        with both for the same cores."""
        threads = native.threads(self._target.handle)
        native.set_threads(self._context, threads, threads)
        status: int = native.decode(self._context, batch.struct)
        if status:
            raise ModelError(f"llama.cpp could not run the prediction heads (status {status})")
        if self._on_device:
            native.synchronize(self._context)


def open_beside(
    weights: Weights, target: LlamaContext, cells: int, *, rows: int, outputs: int, mtp: bool
) -> Any:
    """A context for heads beside that of their target.

    Args:
        rows: of the widest pass.
        outputs: rows of it whose logits are output at most.
        mtp: whether they are blocks of the target's architecture.

    Raises:
        ModelError: llama.cpp cannot make it.
    """
    threads = native.threads(target.handle)
    parameters = context_parameters(cells, outputs, 1, threads, target.plain_rows)
    parameters.n_batch = parameters.n_ubatch = min(rows, parameters.n_ubatch)
    if mtp:
        parameters.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
    parameters.ctx_other = target.handle
    parameters.embeddings = False
    parameters.type_k = parameters.type_v = target.ggml_type
    native.clear_errors()
    context = lib.llama_init_from_model(weights.handle, parameters)
    if not context:
        raise ModelError(native.first_error() or "llama.cpp gives no reason")
    return context
