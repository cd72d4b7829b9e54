"""Files of drafters that read some of a target's layers: EAGLE-3 and DFlash.

Checks that a file fits its target before llama.cpp runs it, which would abort the process.

Embeddings and output matrix are the file's own or the target's. The output may cover a draft
vocabulary only; llama.cpp gives minus infinity to all other tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datastores.errors import InputError, ModelError
from engines.drafters.draft_model import require_same_vocabulary
from engines.llama.context import Weights
from engines.llama.gguf import (
    ARCHITECTURE,
    DFLASH,
    DRAFT_VOCABULARY,
    EAGLE,
    EMBEDDINGS,
    OUTPUT,
    Metadata,
    read_metadata,
)
from engines.llama.target_states import HAS_LAYER_INPUTS, LAYER_INPUT_ARCHITECTURES
from engines.llama.vocabulary import LlamaVocabulary

KINDS = {EAGLE: "EAGLE-3", DFLASH: "DFlash"}
"""Names of the architectures."""
_INT64 = 27
"""ggml's number of the type."""


def require_fits(weights: Weights, target: Weights) -> None:
    """Check that the drafter of `weights` drafts for `target`, and that llama.cpp can run it.

    Raises:
        ModelError: it does not; the message says why.
    """
    metadata, name = read_metadata(weights.path), weights.path.name
    architecture, another = target.metadata(ARCHITECTURE), f"{name} drafts for another model"
    is_eagle = metadata.architecture == EAGLE
    if not HAS_LAYER_INPUTS or architecture not in LAYER_INPUT_ARCHITECTURES:
        kind = KINDS[metadata.architecture]
        raise ModelError(f"this llama.cpp runs no {kind} drafters for {architecture}")
    reads = metadata.number("target_hidden_size" if is_eagle else "embedding_length")
    layers = target_layers(metadata)
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
    """Numbers of the target's layers whose inputs a drafter reads; empty if its file has none."""
    layers = metadata.values.get(f"{metadata.architecture}.target_layers")
    return layers if isinstance(layers, list) else []


def draft_vocabulary(weights: Weights) -> NDArray[np.int64] | None:
    """The only tokens that a drafter can draft, [n]; None if it can draft any.

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
