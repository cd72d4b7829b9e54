"""A student that knows nothing yet: random weights over the vocabulary of a target's file.

For models that have no small sister: it learns all it knows from their answers on this machine.
Owns its sizes. Refuses to know where the file is kept.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from datastores.errors import ModelError
from engines.distillation.export import write_llama
from engines.distillation.model import Llama, LlamaShape
from engines.distillation.weights import MAX_CONTEXT, copy_entries

LAYERS, WIDTH, HIDDEN, HEAD_SIZE = 2, 128, 256, 64
TOKENIZER = "tokenizer."
"""What the names of a file's entries about its vocabulary and its chat template begin with."""


def write_untrained(target: Path, destination: Path, seed: int) -> None:
    """Write a student for the model in the file `target` to `destination`.

    Args:
        seed: of its weights.

    Raises:
        ModelError: `target` cannot be read, or has no vocabulary.
        StoreError: `destination` cannot be written.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(target)
        vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
        architecture = reader.fields["general.architecture"].contents()
        context = reader.fields[f"{architecture}.context_length"].contents()
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{target} cannot be read as a GGUF file: {error}") from error

    torch.manual_seed(seed)
    shape = LlamaShape(
        layers=LAYERS,
        width=WIDTH,
        hidden=HIDDEN,
        vocabulary=vocabulary,
        heads=WIDTH // HEAD_SIZE,
        kv_heads=WIDTH // HEAD_SIZE,
        head_size=HEAD_SIZE,
        context=min(context, MAX_CONTEXT),
    )
    model = Llama(shape)
    write_llama(
        destination,
        "student",
        shape,
        model.state_dict(),
        partial(copy_entries, reader, prefix=TOKENIZER),
    )
