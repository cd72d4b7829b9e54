"""Prediction heads: one or a few blocks that draft a model's next tokens from its states.

Runs them in a llama.cpp context of their own, and keeps the target's states that they have not read
yet (`engines.llama.target_states`).

A head predicts token n + 1 from token n and the target's state at token n - 1. So each token that
the target evaluates leaves a state for the token after it. The first step of a draft starts from
the target's state, each further one from the head's own. The modes are those of llama.cpp's
`common/speculative.cpp` (draft-mtp, draft-eagle3):

- chained: one head reads its own drafts (Qwen3.5, GLM-4.5, DeepSeek-V3). Its cache holds the text;
  drafted cells are dropped, and accepted tokens are read again with the target's states.
- a head for each depth (Step-3.5): depth d is drafted by head d, which reads the root and all
  drafts before it. The heads share cells with separate contents, so each head reads the same
  positions once.
- shared cache (Gemma 4, always in a file of its own): the head attends to the target's cells and
  has none. All tokens of a draft are at the root's position.

The target hands over states as it commits tokens (`take`), and cuts them off when it rewinds
(`truncate`). Nothing is evaluated then, so the first token of an answer never waits for the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import eagle, native
from engines.llama.batch import Batch
from engines.llama.context import LlamaContext, Weights, context_parameters, free_with
from engines.llama.gguf import EAGLE, heads_file, read_metadata
from engines.llama.native import LOGGER, TO_END
from engines.llama.target_states import (
    UNAVAILABLE,
    LayerInputs,
    NextnStates,
    TargetStates,
    get_state,
    set_head,
    set_states,
    view,
)
from engines.llama.workers import Workers
from engines.target import Floats

ARCHITECTURE = "general.architecture"
CHAINED_ARCHITECTURES = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
    }
)
"""Architectures with a single head; llama.cpp aborts the process if there is a second."""
DEPTH_ARCHITECTURES = frozenset({"hy_v3", "mimo2", "step35"})
"""Architectures with a head for each depth, or one."""
SHARING_ARCHITECTURES = frozenset({"gemma4-assistant"})
"""Architectures of files of heads that attend to the target's cache."""
MAX_UNREAD = 1024
"""Maximum number of states kept for unread tokens. The heads skip older ones: drafts get slightly
worse, but no answer waits for a long text to be read twice."""
DROPPED = 256
"""Minimum number of states to skip at once."""
READ_ROWS = 128
"""Number of tokens read in one pass."""


class UnreadStates:
    """The target's states for the tokens that the heads have not read yet.

    Attributes:
        first: position of the first such token.
        count: their number, including the root once its state is known.
    """

    def __init__(self, width: int) -> None:
        self._rows = np.zeros((MAX_UNREAD, width), np.float32)
        self.first = 0
        self.count = 1  # zeros: the first token has no state before it

    @property
    def root(self) -> int:
        """Position of the last token with a known state, or `first` - 1."""
        return self.first + self.count - 1

    @property
    def rows(self) -> Floats:
        """The state before each unread token, float32 [count, width]. A view."""
        return self._rows[: self.count]

    def append(self, states: Floats) -> None:
        """Add states for the next tokens; drop the oldest if there are too many.

        Dropping moves the others, so at least `DROPPED` are dropped at once.
        """
        excess = self.count + len(states) - MAX_UNREAD
        if excess > 0:
            self.drop(min(max(excess, DROPPED), self.count))
        self._rows[self.count : self.count + len(states)] = states
        self.count += len(states)

    def drop(self, count: int) -> None:
        """Drop the first `count` states, of tokens read or skipped."""
        self._rows[: self.count - count] = self._rows[count : self.count].copy()
        self.first += count
        self.count -= count

    def restart(self, position: int, states: Floats) -> None:
        """Start over at `position` with `states`."""
        self.first, self.count = position, 0
        self.append(states)


class PredictionHeads:
    """Runs a model's heads. Implements `engines.drafters.model_drafter.DraftingModel`.

    Args:
        weights: the target's own, or those of a file of heads.
        target: the context whose states they read.
        cells: size of the target's cache.
        length: length of the longest text.

    Attributes:
        shares_cache: whether the heads attend to the target's cache.

    Raises:
        ModelError: llama.cpp cannot run them.
    """

    def __init__(
        self,
        weights: Weights,
        target: LlamaContext,
        cells: int,
        length: int,
    ) -> None:
        _require_runnable(weights, target.weights)
        is_eagle = weights.metadata(ARCHITECTURE) == EAGLE
        heads = 1 if is_eagle else int(lib.llama_model_n_layer_nextn(weights.handle))
        self.draft_vocabulary = eagle.draft_vocabulary(weights) if is_eagle else None
        self._context = _open_context(weights, target, cells, heads)
        free_with(self, lib.llama_free, self._context, weights, target)
        self._target = target
        self._on_device = weights.on_device
        self._memory: Any = lib.llama_get_memory(self._context)
        self.shares_cache = weights.metadata(ARCHITECTURE) in SHARING_ARCHITECTURES
        self._heads = 1 if self.shares_cache else heads
        self.max_depth = heads if self._heads > 1 else length
        self.context_length = length
        self.vocabulary_size = weights.vocabulary_size
        self._width = _state_width(weights)
        set_states(self._context, True, True)
        self._given: TargetStates
        self._fuse: Callable[[Floats], Floats] | None = None
        if is_eagle:
            layers = eagle.target_layers(read_metadata(weights.path))
            self._given = inputs = LayerInputs(target.handle, layers, target.weights.width)
            self._fuse = eagle.Fusion(self._context, inputs, self._width)
        else:
            self._given = NextnStates(target.handle, self._width)
        # Rows up to the root that begin a draft: of an EAGLE-3 pass llama.cpp outputs all anyway.
        self._joined = eagle.ENCODED_ROWS if is_eagle else 1
        self._batch = Batch(int(lib.llama_n_batch(self._context)), width=self._width)
        self._positions = np.arange(cells, dtype=np.int32)
        self._unread = UnreadStates(self._given.width)
        self._tokens: list[int] = []  # unread ones; during a draft, those from the root on
        self._states: list[Floats] = []  # before the root and each drafted token
        self._root = 0
        self._root_state = self._unread.rows[0]  # as the target gave it
        # llama.cpp's at the beginning of a text
        self._no_state = np.zeros((1, self._given.width), np.float32)

    def take(self, start: int, rows: Sequence[int]) -> None:
        """Copy states of the target's last pass.

        Its `rows` hold the tokens at positions `start`, `start` + 1, …, which are now cached.
        """
        unread = self._unread
        if start != unread.root:
            self._remove(0)
            unread.restart(start + 1, self._no_state[:0])
            self._states.clear()
        first = unread.first
        unread.append(self._given.rows(rows))
        if unread.first != first:
            self._remove(0)

    def truncate(self, length: int) -> None:
        """Follow the target, whose cache was cut to its first `length` tokens."""
        unread = self._unread
        if length >= unread.first:
            unread.count = min(unread.count, length - unread.first + 1)
            return
        self._remove(length)
        # Of the states before tokens already read, only the root's is still known.
        known = length == self._root and self._states
        unread.restart(length, self._root_state[None] if known else self._no_state)
        self._states.clear()

    def begin(self, tokens: Sequence[int]) -> int:
        """See `DraftingModel.begin`."""
        unread = self._unread
        if len(tokens) - 1 != unread.root or not unread.count:
            return 0
        self._root = unread.root
        if self.shares_cache:
            unread.drop(unread.count - 1)
        if self._fuse and not unread.first:
            unread.drop(1)  # EAGLE-3 begins with the second token
        self._remove(unread.first)
        self._tokens = list(tokens[unread.first :])
        self._states.clear()
        return unread.count

    def read(self, count: int) -> None:
        """See `DraftingModel.read`."""
        while count > 0:
            rows, first = min(count, len(self._batch.token)), self._unread.first
            states = self._fused(self._unread.rows[:rows])
            for head in range(self._heads):
                self._select(head, first)
                self._evaluate(self._tokens[:rows], states, first, outputs=0)
            self._unread.drop(rows)
            del self._tokens[:rows]
            count -= rows

    def next_row(self, tokens: Sequence[int]) -> Floats:
        """See `DraftingModel.next_row`."""
        rows = 1
        if self._states:
            self._tokens.append(tokens[-1])
        else:
            rows = min(self._unread.count, self._joined)
            self.read(self._unread.count - rows)
            self._root_state = self._unread.rows[-1].copy()
            self._states.extend(self._fused(self._unread.rows.copy()))
        depth = len(tokens) - 1 - self._root
        if self._heads > 1:
            self._select(depth, self._root)
            return self._draft(len(self._tokens), self._root)
        last = self._root if self.shares_cache else self._root + depth
        row = self._draft(rows, last + 1 - rows)
        if not depth:  # final, since their states are the target's
            self._unread.drop(rows)
        return row

    def _draft(self, rows: int, position: int) -> Floats:
        """Evaluate the draft's last `rows` tokens; the logits of the last one.

        All rows are output, since for some architectures llama.cpp would return the first state.
        """
        self._evaluate(self._tokens[-rows:], np.array(self._states[-rows:]), position, outputs=1)
        state = get_state(self._context, rows - 1)
        self._states.append(view(state, 1, self._width)[0].copy())
        logits = native.get_logits(self._context)
        row: Floats = view(logits, rows, self.vocabulary_size)[-1]
        return row

    def _fused(self, states: Floats) -> Floats:
        """What the head reads of the target's `states`."""
        return self._fuse(states) if self._fuse else states

    def _select(self, head: int, position: int) -> None:
        """Let a head read from `position` on, as the head before it did."""
        if self._heads > 1:
            self._remove(position)
            set_head(self._context, head)

    def _remove(self, position: int) -> None:
        """Drop the heads' own cells from `position` on."""
        if not self.shares_cache:
            native.seq_rm(self._memory, 0, position, TO_END)

    def _evaluate(self, tokens: list[int], states: Floats, position: int, *, outputs: int) -> None:
        rows, batch = len(tokens), self._batch
        batch.token[:rows] = tokens
        batch.states[:rows] = states
        batch.position[:rows] = self._positions[position : position + rows]
        batch.logits[:rows] = outputs
        batch.struct.n_tokens = rows
        # As the target's tuners chose: other programs compete with both for the same cores.
        threads = native.threads(self._target.handle)
        native.set_threads(self._context, threads, threads)
        status: int = native.decode(self._context, batch.struct)
        if status:
            raise ModelError(f"llama.cpp could not run the prediction heads (status {status})")
        if self._on_device:
            native.synchronize(self._context)


def open_weights(
    path: Path,
    gpu_layers: int,
    *,
    heads: bool,
    cpu_experts: int = 0,
    workers: Workers | None = None,
) -> Weights:
    """The weights of a model, including its heads if `heads` and if it has them; see `Weights`.

    Raises:
        ModelError: see `Weights`.
    """
    if heads and not UNAVAILABLE:
        try:
            return Weights(path, gpu_layers, heads=True, cpu_experts=cpu_experts, workers=workers)
        except ModelError as error:  # some files lack the heads that their header names
            if not read_metadata(path).number("nextn_predict_layers"):
                raise
            LOGGER.info("without its prediction heads: %s", error)
    return Weights(path, gpu_layers, cpu_experts=cpu_experts, workers=workers)


def open_heads(target: LlamaContext, cells: int, length: int) -> tuple[PredictionHeads | None, str]:
    """The heads of the target's model, from its own file or one in the same folder.

    `target` must not have read anything yet.

    Returns:
        The heads, or None and the reason, which is empty if the model has none.
    """
    weights = target.weights
    try:
        if int(lib.llama_model_n_layer_nextn(weights.handle)):
            return PredictionHeads(weights, target, cells, length), ""
        path = heads_file(weights.path, weights.metadata(ARCHITECTURE))
        if path is not None:
            separate = Weights(path, weights.gpu_layers, companion=True)
            return PredictionHeads(separate, target, cells, length), ""
    except ModelError as error:
        return None, str(error)
    return None, ""


def _open_context(weights: Weights, target: LlamaContext, cells: int, heads: int) -> Any:
    """A context for the `heads` in `weights`, beside that of their target.

    Raises:
        ModelError: llama.cpp cannot make it.
    """
    is_eagle, threads = weights.metadata(ARCHITECTURE) == EAGLE, native.threads(target.handle)
    outputs = eagle.ENCODED_ROWS if is_eagle else heads
    parameters = context_parameters(cells, outputs, 1, threads, target.plain_rows)
    rows = eagle.ENCODED_ROWS if is_eagle else READ_ROWS
    parameters.n_batch = parameters.n_ubatch = min(rows, parameters.n_ubatch)
    if not is_eagle:
        parameters.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
    parameters.ctx_other = target.handle
    parameters.embeddings = False
    parameters.type_k = parameters.type_v = target.ggml_type
    native.clear_errors()
    context = lib.llama_init_from_model(weights.handle, parameters)
    if not context:
        raise ModelError(native.first_error() or "llama.cpp gives no reason")
    return context


def _require_runnable(weights: Weights, target: Weights) -> None:
    """Raise ModelError for heads over which llama.cpp would abort the process."""
    if UNAVAILABLE:
        raise ModelError(UNAVAILABLE)
    architecture = weights.metadata(ARCHITECTURE)
    if architecture == EAGLE:
        eagle.require_fits(weights, target)
        return
    heads = int(lib.llama_model_n_layer_nextn(weights.handle))
    one = architecture in CHAINED_ARCHITECTURES
    if not heads or not (one or architecture in DEPTH_ARCHITECTURES | SHARING_ARCHITECTURES):
        raise ModelError(f"llama.cpp runs no prediction heads of the architecture {architecture}")
    if not weights.heads:
        raise ModelError("its prediction heads are missing in the file, or do not fit into memory")
    if one and heads > 1:
        raise ModelError(f"llama.cpp runs one prediction head of {architecture}, not {heads}")
    width, given = _state_width(weights), _state_width(target)
    if width != given:
        raise ModelError(
            f"its heads are for states of length {width}, not {given}: they belong to another model"
        )


def _state_width(weights: Weights) -> int:
    """Length of the states that heads read; in some models not that of a hidden state."""
    return int(lib.llama_model_n_embd_out(weights.handle))
