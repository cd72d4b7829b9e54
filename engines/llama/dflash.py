"""DFlash drafters: a few layers in a file of their own that draft a block in one pass.

Each layer attends to keys and values that are made from the inputs of some of the target's layers,
and to a block: the root and a mask token for each token to be drafted (arXiv 2602.06036). So a pass
gives the distribution of every token of the block, each without regard to the others. Their most
probable combinations are the tree that is drafted, in `engines.drafters.model_drafter`.

The cache holds what was made from the target's states; a block's own cells are dropped. As in
llama.cpp's `common/speculative.cpp` (draft-dflash, draft-dspark). DSpark's blocks may begin with
the first drafted token; its Markov head, which lets each distribution depend on the most probable
token before, is part of the pass. DFlash 2's scores of pairs of tokens are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.context import LlamaContext, Weights
from engines.llama.drafter_file import draft_vocabulary, target_layers
from engines.llama.gguf import MARKOV, read_metadata
from engines.llama.prediction_heads import READ_ROWS, PredictionHeads, open_beside
from engines.llama.target_states import LayerInputs, view
from engines.target import Floats

DEFAULT_BLOCK = 16
"""llama.cpp's block size for files that do not say."""
POSITIONS = 4
"""Positions of each state that llama.cpp reads if the target's text has several dimensions."""


class BlockHead(PredictionHeads):
    """Runs a DFlash drafter; for the arguments see `heads_loading.open_heads`.

    Raises:
        ModelError: llama.cpp cannot run it.
    """

    def __init__(self, weights: Weights, target: LlamaContext, cells: int, length: int) -> None:
        metadata = read_metadata(weights.path)
        block = min(metadata.number("block_size", DEFAULT_BLOCK), READ_ROWS)
        mask = int(lib.llama_vocab_mask(weights.vocabulary))
        if block < 2 or not 0 <= mask < weights.vocabulary_size:
            raise ModelError(f"{weights.path.name} is damaged: it has no block of mask tokens")
        self.draft_vocabulary = draft_vocabulary(weights)
        context = open_beside(weights, target, cells, rows=READ_ROWS, outputs=block, mtp=False)
        rows = int(lib.llama_n_batch(context))
        from_root = metadata.values.get("dflash.sample_from_anchor", True)
        # Rows of a block before that of the first drafted token: the root's.
        self._skipped = 0 if MARKOV in metadata.tables and from_root else 1
        self.max_depth = min(block, rows) - self._skipped
        given = LayerInputs(target.handle, target_layers(metadata), target.weights.width)
        super().__init__(weights, target, context, given, lag=0, length=length)
        causal = metadata.values.get("dflash.attention.causal") is True
        lib.llama_set_causal_attn(context, causal)
        self._block = Batch(min(block, rows))
        self._block.token[1:] = mask
        self._states = Batch(rows, width=given.width, positions=POSITIONS)
        no_tokens: Any = None
        self._states.struct.token = no_tokens
        self._states.logits[:] = 0

    def begin(self, tokens: Sequence[int]) -> int:
        """See `DraftingModel.begin`."""
        unread = self._unread
        if len(tokens) - 1 != unread.root:
            return 0
        self._remove(unread.first)
        return unread.count + 1

    def read(self, count: int) -> None:
        """See `DraftingModel.read`."""
        batch = self._states
        while count > 0:
            rows, first = min(count, len(batch.token)), self._unread.first
            batch.states[:rows] = self._unread.rows[:rows]
            places = batch.position[: POSITIONS * rows].reshape(POSITIONS, rows)
            places[:] = range(first, first + rows)
            places[-1] = 0
            batch.struct.n_tokens = rows
            self._run(batch)
            self._unread.drop(rows)
            count -= rows

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """See `DraftingModel.next_rows`: as many rows as the block has."""
        self.read(self._unread.count)
        root, batch = self._unread.root, self._block
        rows = min(count, self.max_depth) + self._skipped
        batch.token[0] = tokens[-1]
        batch.position[:rows] = range(root, root + rows)
        batch.struct.n_tokens = rows
        self._run(batch)
        logits = native.get_logits(self._context)
        return view(logits, rows, self._vocabulary_size)[self._skipped :]
