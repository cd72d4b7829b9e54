"""An untrained draft model with the vocabulary of a target's file.

It serves targets without a small model of the same family, and learns from their answers on this
machine. It is pruned out of the target (`pruning`), or random if the target is of an unknown
family. Its size follows from the cost of the target's pass, in bytes of weights read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from datastores.errors import InputError, ModelError
from engines.distillation.export import write_llama
from engines.distillation.model import Llama, LlamaShape
from engines.distillation.pruning import PrunedTarget, kept_layers, prune
from engines.distillation.trainer import FROM_NOTHING, PRUNED, TrainingSettings
from engines.distillation.weights import (
    MAX_CONTEXT,
    LlamaFile,
    copy_entries,
    open_gguf,
    read_shape,
)

MAX_COST = 1 / 8
"""Largest share of the bytes read by the target's pass that the draft model's pass may read."""
MIN_LAYERS = 4
"""Layers for a target of up to 32 layers; for a deeper one, `MAX_COST` of its layers."""
MIN_WIDTH, WIDTH_STEP = 128, 64
"""After 200 answers of the embedded target, agreement on 12,021 tokens of new questions: width 128
with 2, 3 and 4 layers .66, .70 and .71; width 256 with 2 layers .68; from random weights, width 128
with 2 layers, .56."""
MAX_WEIGHTS = 2**27
"""Training takes 20 bytes for each weight: 2.5 GiB."""
RANDOM_LAYERS, HEAD_SIZE = 2, 64
BYTES_PER_WEIGHT = 34 / 32
"""In Q8_0."""
TOKENIZER = "tokenizer."
"""Prefix of a file's metadata about its vocabulary and its chat template."""

LOGGER = logging.getLogger("specchat.distillation")


def write_untrained(destination: Path, seed: int, target: Path, *parts: Path) -> None:
    """Write a draft model for the model in the file `target` and its other `parts`.

    Args:
        seed: of random weights.

    Raises:
        InputError: no draft model of a useful size is cheap enough.
        ModelError: `target` cannot be read, or has no vocabulary.
        StoreError: `destination` cannot be written.
    """
    readers = [open_gguf(each) for each in (target, *parts)]
    reader = readers[0]
    try:
        vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
        architecture = reader.fields["general.architecture"].contents()
        context = reader.fields[f"{architecture}.context_length"].contents()
    except KeyError as error:
        raise ModelError(f"{target} cannot be read as a GGUF file: {error}") from error
    budget = MAX_COST * pass_bytes(readers)
    try:
        source = PrunedTarget(target, *parts)
        sizes = pruned_shape(source.shape, budget)
        _require_useful(target, sizes, budget)
        draft_model = prune(source, sizes.layers, sizes.width)
    except ModelError as error:
        LOGGER.info("the draft model for %s begins at random: %s", target, error)
        sizes = _random_shape(vocabulary, context)
        _require_useful(target, sizes, budget)
        torch.manual_seed(seed)
        draft_model = LlamaFile(sizes, Llama(sizes).state_dict(), None)
    write_llama(
        destination,
        "draft-model",
        draft_model.shape,
        draft_model.weights,
        partial(copy_entries, reader, prefix=TOKENIZER),
        draft_model.rope_factors,
        quantised=True,
    )


def pass_bytes(readers: Iterable[Any]) -> float:
    """Bytes of weights that one pass of the model reads.

    Of the embeddings, a pass reads one row, unless they are also the output matrix; of experts,
    those in use.

    Args:
        readers: a `gguf.GGUFReader` for each part.
    """
    tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
    fields = {name: field for reader in readers for name, field in reader.fields.items()}

    def number(key: str) -> float:
        found = (field for name, field in fields.items() if name.endswith(f".{key}"))
        return next((float(field.contents()) for field in found), 1.0)

    used = number("expert_used_count") / number("expert_count")
    return sum(
        float(tensor.n_bytes) * (used if "_exps." in name else 1.0)
        for name, tensor in tensors.items()
        if name != "token_embd.weight" or "output.weight" not in tensors
    )


def pruned_shape(target: LlamaShape, budget: float) -> LlamaShape:
    """The widest draft model of `target` whose pass reads at most `budget` bytes."""
    layers = len(kept_layers(target, max(MIN_LAYERS, round(MAX_COST * target.layers))))
    # Every matrix has one side in the stream.
    heads = 2 * (target.heads + target.kv_heads) * target.head_size
    stack = layers * (heads + 3 * target.hidden)
    affordable = budget / BYTES_PER_WEIGHT / (target.vocabulary + stack)
    trainable = MAX_WEIGHTS / (2 * target.vocabulary + stack)
    width = int(min(affordable, trainable)) // WIDTH_STEP * WIDTH_STEP
    return replace(target, layers=layers, width=min(width, target.width), tied=False)


def _require_useful(target: Path, sizes: LlamaShape, budget: float) -> None:
    """Raises InputError: a draft model of these `sizes` is too narrow or reads too much."""
    least = MIN_WIDTH * sizes.vocabulary * BYTES_PER_WEIGHT
    if sizes.width < MIN_WIDTH or least > budget:
        raise InputError(
            f"no draft model is made for {target.name}: one may read {budget / 1e6:,.0f} MB a"
            f" token, an eighth of what the model reads, of which the smallest useful one takes"
            f" {least / 1e6:,.0f} MB for the {sizes.vocabulary:,} tokens of the vocabulary alone"
        )


def training_settings(draft_model: Path) -> TrainingSettings:
    """The training settings for a file that `write_untrained` wrote.

    Raises:
        ModelError: the file cannot be read.
    """
    # A pruned draft model has an output matrix of its own.
    tied = read_shape(draft_model, open_gguf(draft_model)).tied
    return FROM_NOTHING if tied else PRUNED


def _random_shape(vocabulary: int, context: int) -> LlamaShape:
    """The smallest useful sizes: a random model learns no faster if it is larger."""
    return LlamaShape(
        layers=RANDOM_LAYERS,
        width=MIN_WIDTH,
        hidden=2 * MIN_WIDTH,
        vocabulary=vocabulary,
        heads=MIN_WIDTH // HEAD_SIZE,
        kv_heads=MIN_WIDTH // HEAD_SIZE,
        head_size=HEAD_SIZE,
        context=min(context, MAX_CONTEXT),
    )
