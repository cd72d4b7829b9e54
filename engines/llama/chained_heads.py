"""Prediction heads that draft one token after the other.

A head predicts token n + 1 from token n and the target's state at token n - 1. So each token that
the target evaluates leaves a state for the token after it. The first step of a draft starts from
the target's state, each further one from the head's own. The modes are those of llama.cpp's
`common/speculative.cpp` (draft-mtp, draft-eagle3):

- chained: one head reads its own drafts (Qwen3.5, GLM-4.5, DeepSeek-V3, EAGLE-3). Its cache holds
  the text; drafted cells are dropped, and accepted tokens are read again with the target's states.
- a head for each depth (Step-3.5): depth d is drafted by head d, which reads the root and all
  drafts before it. The heads share cells with separate contents, so each head reads the same
  positions once.
- shared cache (Gemma 4, always in a file of its own): the head attends to the target's cells and
  has none. All tokens of a draft are at the root's position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llama_cpp import llama_cpp as lib

from engines.llama import drafter_file, native
from engines.llama.batch import Batch
from engines.llama.context import LlamaContext, Weights
from engines.llama.eagle import ENCODED_ROWS, Fusion
from engines.llama.gguf import ARCHITECTURE, EAGLE, read_metadata
from engines.llama.prediction_heads import READ_ROWS, PredictionHeads, open_beside
from engines.llama.target_states import (
    LayerInputs,
    NextnStates,
    TargetStates,
    get_state,
    set_head,
    set_states,
    view,
)
from engines.target import Floats

SHARING_ARCHITECTURES = frozenset({"gemma4-assistant"})
"""Architectures of files of heads that attend to the target's cache."""


class ChainedHeads(PredictionHeads):
    """Runs heads one token at a time; for the arguments see `heads_loading.open_heads`.

    Attributes:
        shares_cache: whether the heads attend to the target's cache.

    Raises:
        ModelError: llama.cpp cannot run them.
    """

    def __init__(self, weights: Weights, target: LlamaContext, cells: int, length: int) -> None:
        is_eagle = weights.metadata(ARCHITECTURE) == EAGLE
        heads = 1 if is_eagle else int(lib.llama_model_n_layer_nextn(weights.handle))
        rows, outputs = (ENCODED_ROWS, ENCODED_ROWS) if is_eagle else (READ_ROWS, heads)
        self.shares_cache = weights.metadata(ARCHITECTURE) in SHARING_ARCHITECTURES
        self._heads = 1 if self.shares_cache else heads
        self.max_depth = heads if self._heads > 1 else length
        self._width = width = state_width(weights)
        self.draft_vocabulary = drafter_file.draft_vocabulary(weights) if is_eagle else None
        context = open_beside(weights, target, cells, rows=rows, outputs=outputs, mtp=not is_eagle)
        given: TargetStates
        self._fuse: Callable[[Floats], Floats] | None = None
        if is_eagle:
            layers = drafter_file.target_layers(read_metadata(weights.path))
            given = inputs = LayerInputs(target.handle, layers, target.weights.width)
            self._fuse = Fusion(context, inputs, width)
        else:
            given = NextnStates(target.handle, width)
        super().__init__(weights, target, context, given, lag=1, length=length)
        set_states(context, True, True)
        # Rows up to the root that begin a draft: of an EAGLE-3 pass llama.cpp outputs all anyway.
        self._joined = ENCODED_ROWS if is_eagle else 1
        self._batch = Batch(int(lib.llama_n_batch(context)), width=width)
        self._positions = np.arange(cells, dtype=np.int32)
        self._tokens: list[int] = []  # unread ones; during a draft, those from the root on
        self._states: list[Floats] = []  # before the root and each drafted token
        self._root = 0

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

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """See `DraftingModel.next_rows`: always one row."""
        rows = 1
        if self._states:
            self._tokens.append(tokens[-1])
        else:
            rows = min(self._unread.count, self._joined)
            self.read(self._unread.count - rows)
            self._states.extend(self._fused(self._unread.rows.copy()))
        depth = len(tokens) - 1 - self._root
        if self._heads > 1:
            self._select(depth, self._root)
            return self._draft(len(self._tokens), self._root)
        last = self._root if self.shares_cache else self._root + depth
        drafted = self._draft(rows, last + 1 - rows)
        if not depth:  # final, since their states are the target's
            self._unread.drop(rows)
        return drafted

    def _draft(self, rows: int, position: int) -> Floats:
        """Evaluate the draft's last `rows` tokens; the logits of the last one, [1, vocabulary].

        All rows are output, since for some architectures llama.cpp would return the first state.
        """
        self._evaluate(self._tokens[-rows:], np.array(self._states[-rows:]), position, outputs=1)
        state = get_state(self._context, rows - 1)
        self._states.append(view(state, 1, self._width)[0].copy())
        logits = native.get_logits(self._context)
        return view(logits, rows, self._vocabulary_size)[-1:]

    def _fused(self, states: Floats) -> Floats:
        """What the head reads of the target's `states`."""
        return self._fuse(states) if self._fuse else states

    def _select(self, head: int, position: int) -> None:
        """Let a head read from `position` on, as the head before it did."""
        if self._heads > 1:
            self._remove(position)
            set_head(self._context, head)

    def _remove(self, position: int) -> None:
        """See `PredictionHeads._remove`."""
        if not self.shares_cache:
            super()._remove(position)

    def _evaluate(self, tokens: list[int], states: Floats, position: int, *, outputs: int) -> None:
        rows, batch = len(tokens), self._batch
        batch.token[:rows] = tokens
        batch.states[:rows] = states
        batch.position[:rows] = self._positions[position : position + rows]
        batch.logits[:rows] = outputs
        batch.struct.n_tokens = rows
        self._run(batch)


def state_width(weights: Weights) -> int:
    """Length of the states that heads read; in some models not that of a hidden state."""
    return int(lib.llama_model_n_embd_out(weights.handle))
