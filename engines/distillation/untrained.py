"""A student that has learned nothing yet, with the vocabulary of a target's file.

For models that have no small sister: it learns from their answers on this machine. It begins as
what can be pruned out of the target, or at random where the target is no plain Llama. Owns its
sizes. Refuses to know where the file is kept.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import torch

from datastores.errors import ModelError
from engines.distillation.export import write_llama
from engines.distillation.model import Llama, LlamaShape
from engines.distillation.pruning import prune
from engines.distillation.trainer import FROM_NOTHING, PRUNED, TrainingSettings
from engines.distillation.weights import (
    MAX_CONTEXT,
    StudentFile,
    copy_entries,
    open_gguf,
    read_shape,
)

LAYERS, WIDTH, HIDDEN = 4, 128, 256
"""Sizes of what is pruned. After 200 answers of the embedded target, agreement on 12,021 tokens of
new questions, and the share of the target's weights that a pass reads: width 128 with 2, 3 and 4
layers .66 (.14), .70 (.17) and .71 (.20); width 256 with 2 layers and all neurons .68 (.36); from
random weights, with 2 layers, .56 (.12)."""
RANDOM_LAYERS, HEAD_SIZE = 2, 64
TOKENIZER = "tokenizer."
"""What the names of a file's entries about its vocabulary and its chat template begin with."""

LOGGER = logging.getLogger("specchat.distillation")


def write_untrained(destination: Path, seed: int, target: Path, *parts: Path) -> None:
    """Write a student for the model in the file `target`, and its other `parts`, to `destination`.

    Args:
        seed: of its weights, where they are drawn at random.

    Raises:
        ModelError: `target` cannot be read, or has no vocabulary.
        StoreError: `destination` cannot be written.
    """
    reader = open_gguf(target)
    try:
        vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
        architecture = reader.fields["general.architecture"].contents()
        context = reader.fields[f"{architecture}.context_length"].contents()
    except KeyError as error:
        raise ModelError(f"{target} cannot be read as a GGUF file: {error}") from error
    try:
        student = prune(target, *parts, layers=LAYERS, width=WIDTH, hidden=HIDDEN)
    except ModelError as error:
        LOGGER.info("the draft model for %s begins at random: %s", target, error)
        student = _random_student(vocabulary, context, seed)
    write_llama(
        destination,
        "student",
        student.shape,
        student.weights,
        partial(copy_entries, reader, prefix=TOKENIZER),
        student.rope_factors,
    )


def training_settings(student: Path) -> TrainingSettings:
    """How the student in a file that `write_untrained` wrote learns.

    Raises:
        ModelError: it cannot be read.
    """
    # What is pruned has an output matrix of its own.
    tied = read_shape(student, open_gguf(student)).tied
    return FROM_NOTHING if tied else PRUNED


def _random_student(vocabulary: int, context: int, seed: int) -> StudentFile:
    torch.manual_seed(seed)
    shape = LlamaShape(
        layers=RANDOM_LAYERS,
        width=WIDTH,
        hidden=HIDDEN,
        vocabulary=vocabulary,
        heads=WIDTH // HEAD_SIZE,
        kv_heads=WIDTH // HEAD_SIZE,
        head_size=HEAD_SIZE,
        context=min(context, MAX_CONTEXT),
    )
    return StudentFile(shape, Llama(shape).state_dict(), None)
