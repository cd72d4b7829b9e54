"""EAGLE-3 drafters: one block in a file of its own that drafts for a model (arXiv 2503.01840).

Checks that a file fits its target, and runs the encoder, which fuses the inputs of three of the
target's layers into the state that the block reads (section 3.1). The block itself runs as any
other chained head does, in `engines.llama.prediction_heads`.

Embeddings and output matrix are the file's own or the target's. The output may cover a draft
vocabulary only; llama.cpp gives minus infinity to all other tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from datastores.errors import InputError, ModelError
from engines.drafters.draft_model import require_same_vocabulary
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.context import Weights
from engines.llama.gguf import DRAFT_VOCABULARY, EAGLE, EMBEDDINGS, OUTPUT, Metadata, read_metadata
from engines.llama.target_states import (
    HAS_LAYER_INPUTS,
    LAYER_INPUT_ARCHITECTURES,
    LayerInputs,
    get_states,
    view,
)
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Floats

ENCODED_ROWS = 32
"""Rows that are fused and read in one pass: llama.cpp outputs the logits of all of them, which take
20 MB for 152,000 tokens."""
_INT64 = 27
"""ggml's number of the type."""


def require_fits(weights: Weights, target: Weights) -> None:
    """Check that the EAGLE-3 file of `weights` drafts for `target`, and that llama.cpp can run it.

    Raises:
        ModelError: it does not; the message says why.
    """
    architecture, name = target.metadata("general.architecture"), weights.path.name
    if not HAS_LAYER_INPUTS or architecture not in LAYER_INPUT_ARCHITECTURES:
        raise ModelError(f"this llama.cpp runs no EAGLE-3 drafters for {architecture}")
    metadata, another = read_metadata(weights.path), f"{name} drafts for another model"
    reads, layers = metadata.number("target_hidden_size"), target_layers(metadata)
    if reads != target.width:
        raise ModelError(f"{another}, of width {reads} and not {target.width}")
    if not layers or not 0 <= min(layers) <= max(layers) < target.layers:
        raise ModelError(f"{name} reads layers {layers} of a model with {target.layers}")
    shared = EMBEDDINGS not in metadata.tables or OUTPUT not in metadata.tables
    if shared and metadata.number("embedding_length") != target.width:
        raise ModelError(f"{name} is damaged: it has no embeddings of its own width")
    own, others = LlamaVocabulary(weights), LlamaVocabulary(target)
    if own.size != others.size:
        raise ModelError(f"{another}, of {own.size} tokens and not {others.size}")
    try:
        require_same_vocabulary(own, others)
    except InputError as error:
        raise ModelError(f"{another}: {error}") from error


def target_layers(metadata: Metadata) -> list[int]:
    """Numbers of the target's layers whose inputs an EAGLE-3 file reads; empty if it has none."""
    layers = metadata.values.get(f"{EAGLE}.target_layers")
    return layers if isinstance(layers, list) else []


def draft_vocabulary(weights: Weights) -> NDArray[np.int64] | None:
    """The only tokens that an EAGLE-3 file can draft, [n]; None if it can draft any.

    Raises:
        ModelError: they are not different tokens of its vocabulary.
    """
    metadata = read_metadata(weights.path)
    tensor = metadata.tables.get(DRAFT_VOCABULARY)
    if tensor is None:
        return None
    count, start = tensor.shape[0], metadata.size + tensor.offset
    tokens = np.zeros(0, np.int64)
    if tensor.kind == _INT64 and 0 < count <= weights.vocabulary_size:
        tokens = np.fromfile(weights.path, np.dtype("<i8"), count, offset=start)
    inside = len(tokens) and 0 <= tokens.min() <= tokens.max() < weights.vocabulary_size
    if not inside or len(np.unique(tokens)) != count:
        raise ModelError(f"{weights.path.name} is damaged: its draft vocabulary is none")
    return tokens


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
