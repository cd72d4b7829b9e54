"""The GGUF file of an EAGLE-3 drafter: read into torch, and written with other weights.

A file is written with the metadata and types of another one whose weights are replaced. Types that
can only be read, such as K-quants, become Q8_0. Embeddings and output matrix do not change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datastores.errors import ModelError, StoreError
from engines.distillation.eagle_block import EagleBlock
from engines.distillation.model import LlamaShape
from engines.distillation.output_matrix import EMBEDDINGS, OUTPUT, OutputMatrix
from engines.distillation.weights import (
    MAX_CONTEXT,
    ROPE_FACTORS,
    copy_entries,
    deinterleave,
    interleave,
    open_gguf,
    read_values,
)

ARCHITECTURE, DRAFT_VOCABULARY = "eagle3", "d2t"
"""The architecture, and the tensor with the only tokens that it can draft."""
WHOLE = ("fc", "output_norm")
"""Tensors that belong to no block."""
PAIRED = ("attn_q", "attn_k")
"""Tensors whose rows belong to rotated heads."""
OPTIONS = ("norm_before_residual", "norm_before_fc")
"""Options of llama.cpp's graph that training does not have."""


@dataclass(frozen=True)
class EagleFile:
    """An EAGLE-3 drafter with what it shares with its target.

    Attributes:
        drafted: int64 [n], the tokens that it can draft.
        output: float32 [n, width], their rows of the output matrix.
        size: number of all tokens.
        embed: the embeddings of tokens.
    """

    block: EagleBlock
    drafted: NDArray[np.int64]
    output: Tensor
    size: int
    embed: Callable[[Tensor], Tensor]


def read_eagle(path: Path, target: Sequence[Path]) -> EagleFile:
    """Read the drafter at `path` for the model whose files are `target`.

    Raises:
        ModelError: it cannot be read, or cannot be trained.
    """
    reader = open_gguf(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    factors: Tensor | float = 1.0
    if ROPE_FACTORS in tensors:
        factors = torch.from_numpy(read_values(path, tensors[ROPE_FACTORS]))
    shape, reads = _sizes(path, reader)
    block = EagleBlock(shape, reads, factors)
    weights = {}
    for name, parameter in block.named_parameters():
        if (tensor := tensors.get(_tensor_name(name))) is None:
            raise ModelError(f"{path} cannot be trained: it has no tensor {_tensor_name(name)}")
        values = torch.from_numpy(read_values(path, tensor))
        if name in PAIRED:
            values = deinterleave(values, len(values) // shape.head_size)
        if values.shape != parameter.shape:
            raise ModelError(f"{path} cannot be trained: {tensor.name} has another size")
        weights[name] = values
    block.load_state_dict(weights | {"scale": block.scale})
    own = OutputMatrix(path) if OUTPUT in tensors else None
    matrix = own or OutputMatrix(*target)
    drafted = np.arange(matrix.size)
    if DRAFT_VOCABULARY in tensors:
        drafted = np.array(tensors[DRAFT_VOCABULARY].data, np.int64).ravel()
    rows = matrix.rows(np.arange(matrix.size) if own else drafted)
    if len(rows) != len(drafted):
        raise ModelError(f"{path} cannot be trained: its draft vocabulary has another size")
    files = (path,) if EMBEDDINGS in tensors else target
    embeddings = OutputMatrix(*files, names=(EMBEDDINGS,))
    return EagleFile(block, drafted, torch.from_numpy(rows), embeddings.size, embeddings.embed)


def write_eagle(source: Path, block: EagleBlock, destination: Path) -> None:
    """Write the drafter at `source` with the weights of `block` to `destination`.

    The whole file is synced to disk when this returns; an error leaves none.

    Raises:
        ModelError: `source` cannot be read.
        StoreError: `destination` cannot be written.
    """
    from gguf import GGUFWriter

    reader, trained = open_gguf(source), file_tensors(block)
    try:
        writer = GGUFWriter(destination, ARCHITECTURE)
        copy_entries(reader, writer, "")
        for tensor in reader.tensors:
            raw, kind = tensor.data, tensor.tensor_type
            if tensor.name in trained:
                raw, kind = _encoded(trained[tensor.name], kind)
            writer.add_tensor(tensor.name, raw, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with destination.open("r+b") as file:
            os.fsync(file.fileno())
    except OSError as error:
        destination.unlink(missing_ok=True)
        raise StoreError(f"cannot write {destination}: {error.strerror}") from error


def file_tensors(block: EagleBlock) -> Mapping[str, Tensor]:
    """The tensors of a file with the weights of `block`."""
    weights = {name: weight.detach().float() for name, weight in block.named_parameters()}
    weights["fc"] = weights["fc"] / block.scale
    for name in PAIRED:
        weights[name] = interleave(weights[name], len(weights[name]) // block.shape.head_size)
    return {_tensor_name(name): weight for name, weight in weights.items()}


def _tensor_name(parameter: str) -> str:
    return f"{'' if parameter in WHOLE else 'blk.0.'}{parameter}.weight"


def _encoded(values: Tensor, kind: Any) -> tuple[Any, Any]:
    """New weights in the type of those that they replace, or in Q8_0."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    array = values.contiguous().numpy()
    try:
        return quantize(array, kind), kind
    except NotImplementedError:
        return quantize(array, GGMLQuantizationType.Q8_0), GGMLQuantizationType.Q8_0


def _sizes(path: Path, reader: Any) -> tuple[LlamaShape, int]:
    """The sizes of the drafter, and the width of its target."""

    def value(key: str, default: Any = None) -> Any:
        field = reader.fields.get(f"{ARCHITECTURE}.{key}")
        found = default if field is None else field.contents()
        if found is None:
            raise ModelError(f"{path} cannot be trained: it does not say its {key}")
        return found

    for option in OPTIONS:
        if value(option, False):
            raise ModelError(f"{path} cannot be trained: it uses {option}")
    if value("rope.scaling.type", "none") != "none":
        raise ModelError(f"{path} cannot be trained: its positions are scaled")
    heads, width = value("attention.head_count"), value("embedding_length")
    shape = LlamaShape(
        layers=1,
        width=width,
        hidden=value("feed_forward_length"),
        vocabulary=0,
        heads=heads,
        kv_heads=value("attention.head_count_kv", heads),
        head_size=value("attention.key_length", width // heads),
        context=min(value("context_length"), MAX_CONTEXT),
        rope_base=value("rope.freq_base", 10000.0),
        epsilon=value("attention.layer_norm_rms_epsilon"),
    )
    return shape, value("target_hidden_size")
