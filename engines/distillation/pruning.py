"""A draft model pruned out of its target: some of its layers, on the main directions of its stream.

What the target's weights know need not be learned again from a user's few answers. Weight
subcloning (Samragh et al. 2023, arXiv 2312.09299) initialises small models like this, and Minitron
(Muralidharan et al. 2024, arXiv 2407.14679) continues with distillation, as `trainer` does.

Depth: the first layer, without which the others get no usable input, and others at equal distances.
Width: the residual stream is projected on its main directions, as in SliceGPT (Ashkboos et al.
2024, arXiv 2401.15024). RMSNorm commutes with rotations once its scales are multiplied into the
matrices after it (theorem 1 there), so only the other directions are lost. SliceGPT takes the
directions from states; a draft model is made before there are any, so they are those of the weights
that read from the stream and write to it. Heads and neurons are unchanged.

A norm after a layer's halves, as in Gemma, does not commute: where the width shrinks, its scales
move into the matrix before it, and one number remains, the mean effect on the length.

The result is of the target's family, except that of a Qwen2, which becomes a Llama with biases:
only for these does llama.cpp run heads whose total width differs from the stream's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engines.distillation.family import GEMMA, LLAMA
from engines.distillation.model import LlamaShape
from engines.distillation.weights import (
    ROPE_FACTORS,
    LlamaFile,
    from_file,
    open_gguf,
    parameter_name,
    read_shape,
    read_values,
)

READERS = {
    "q_proj": "input_layernorm",
    "k_proj": "input_layernorm",
    "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm",
    "up_proj": "post_attention_layernorm",
}
"""The matrices of a layer that read from the stream → the norm before each."""
WRITERS = {"o_proj": "attention_output_norm", "down_proj": "feedforward_output_norm"}
"""Those that write to it → the norm after each, where the family has one."""
HEAD_PARTS = ("q_bias", "k_bias", "v_bias", "q_norm", "k_norm")
"""Parameters of heads, whose sizes are unchanged."""
ODD_GEMMA = 62
"""Number of layers by which llama.cpp recognises the one Gemma 3 that scales attention by
√(width / heads) instead of √head_size; the difference moves into the norm of q."""
PIECE_ROWS = 4096
"""Rows of a matrix read at a time: a whole one of a large target would not fit in memory."""

MIN_SQUARES = 1e-12
"""Below any matrix's sum of squares, except matrices of zeros from `llama.enlarge`."""


def prune(source: PrunedTarget, layers: int, width: int) -> LlamaFile:
    """Prune a target; full sizes give the target itself, with a rotated stream.

    Args:
        layers: most layers.
        width: largest width of the residual stream.

    Raises:
        ModelError: the target has weights of a type that cannot be read.
    """
    whole = source.shape
    kept = kept_layers(whole, layers)
    basis = _main_directions(source, kept, min(width, whole.width))
    # RMSNorm divides by √(Σx² / width + ε): over a smaller width the same x are divided by more.
    smaller = whole.width / basis.shape[1]
    scale = torch.full((basis.shape[1],), smaller**0.5)
    embedding_scale = smaller**0.5 if whole.family.scaled_embeddings else 1.0
    weights = {
        "embed_tokens": source.projected("embed_tokens", basis) * embedding_scale,
        "norm": scale,
        "lm_head": source.projected(source.output, basis, "norm"),
    }
    for place, layer in enumerate(kept):
        pruned = _pruned_layer(source, layer, basis)
        pruned |= dict.fromkeys(READERS.values(), scale)
        weights |= {f"layers.{place}.{name}": weight for name, weight in pruned.items()}
    shape = replace(
        whole,
        layers=len(kept),
        width=basis.shape[1],
        epsilon=whole.epsilon * smaller,
        tied=False,
        family=LLAMA if whole.biases else whole.family,
    )
    return LlamaFile(shape, weights, source.rope_factors)


def kept_layers(shape: LlamaShape, count: int) -> list[int]:
    """The up to `count` layers that are kept: at equal distances, starting with the first.

    Of a family with local layers, only local ones are kept, and fewer than precede the first other
    one, so that each is local in its new place too.
    """
    layers = list(range(shape.layers))
    if shape.family.whole_every and count < shape.layers:
        layers = [layer for layer in layers if shape.family.is_local(layer)]
        count = min(count, shape.family.whole_every - 1)
    kept = min(len(layers), count)
    return [layers[place * len(layers) // kept] for place in range(kept)]


class PrunedTarget:
    """The parameters of the target in a GGUF file, by the names of `Llama`'s.

    Attributes:
        output: name of the output matrix.
        rope_factors: as in `LlamaFile`.
    """

    def __init__(self, path: Path, *parts: Path) -> None:
        """Open all files of the model.

        Raises:
            ModelError: one cannot be read, or the model is of no known family.
        """
        readers = [open_gguf(each) for each in (path, *parts)]
        tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self._path = path
        self.shape = read_shape(path, *readers)
        factors = tensors.pop(ROPE_FACTORS, None)
        self.rope_factors = None if factors is None else self._values(factors)
        self._tensors = {parameter_name(path, name): each for name, each in tensors.items()}
        self.output = "embed_tokens" if self.shape.tied else "lm_head"

    def _values(self, tensor: Any, rows: slice = slice(None)) -> Tensor:
        return torch.from_numpy(read_values(self._path, tensor, rows))

    def pieces(self, name: str, norm: str | None = None) -> Iterator[Tensor]:
        """The rows of a matrix (rows, columns), some at a time, scaled by the `norm` before it."""
        tensor = self._tensors[name]
        scale = 1.0 if norm is None else self._values(self._tensors[norm])
        for first in range(0, len(tensor.data), PIECE_ROWS):
            yield self._values(tensor, slice(first, first + PIECE_ROWS)) * scale

    def whole(self, name: str) -> Tensor:
        """A matrix or vector, in the order of training."""
        return from_file(name, self._values(self._tensors[name]), self.shape)

    def projected(self, name: str, basis: Tensor, norm: str | None = None) -> Tensor:
        """The rows of a matrix, projected on the columns of `basis` (columns, width)."""
        rows = torch.cat([piece @ basis for piece in self.pieces(name, norm)])
        return from_file(name, rows, self.shape)

    def head_parts(self, layer: int) -> dict[str, Tensor]:
        """The parameters of the heads of a layer, by the names in `HEAD_PARTS`."""
        names = {part: f"layers.{layer}.{part}" for part in HEAD_PARTS}
        found = {part: self.whole(name) for part, name in names.items() if name in self._tensors}
        shape = self.shape
        if shape.family is GEMMA and shape.layers == ODD_GEMMA:
            found["q_norm"] *= (shape.head_size * shape.heads / shape.width) ** 0.5
        return found


def _main_directions(source: PrunedTarget, layers: Sequence[int], count: int) -> Tensor:
    """The orthonormal columns (target's width, `count`) that hold most of what is read from the
    stream and written to it, with equal weight for each matrix.

    The identity if no direction is left out and the norms do not allow a rotation."""
    width = source.shape.width
    if count == width and source.shape.family.output_norms:
        return torch.eye(width)
    moments = torch.zeros(width, width)
    for rows in _stream_rows(source, layers):
        moments += rows.T @ rows / rows.square().sum().clamp(min=MIN_SQUARES)
    vectors: Tensor = torch.linalg.eigh(moments).eigenvectors
    return vectors.flip(1)[:, :count].contiguous()


def _stream_rows(source: PrunedTarget, layers: Sequence[int]) -> Iterator[Tensor]:
    """Vectors in the stream's space, (n, target's width), one matrix after another.

    A piece of each suffices: vocabularies begin with their frequent tokens, and neurons have no
    order.
    """
    yield next(source.pieces("embed_tokens"))
    yield next(source.pieces(source.output, "norm"))
    for layer in layers:
        for name, norm in READERS.items():
            yield next(source.pieces(f"layers.{layer}.{name}", f"layers.{layer}.{norm}"))
        for name in WRITERS:
            yield source.whole(f"layers.{layer}.{name}").T[:PIECE_ROWS]


def _pruned_layer(source: PrunedTarget, layer: int, basis: Tensor) -> dict[str, Tensor]:
    """The parameters of a layer on the directions of `basis`, without the norms before it."""
    found = {
        name: source.projected(f"layers.{layer}.{name}", basis, f"layers.{layer}.{norm}")
        for name, norm in READERS.items()
    }
    found |= source.head_parts(layer)
    for name, norm in WRITERS.items():
        found |= _written(source, layer, name, norm, basis)
    return found


def _written(
    source: PrunedTarget, layer: int, name: str, norm: str, basis: Tensor
) -> dict[str, Tensor]:
    """A matrix that writes to the stream, on the directions of `basis`, and the norm after it."""
    matrix = source.whole(f"layers.{layer}.{name}")
    if not source.shape.family.output_norms:
        return {name: basis.T @ matrix}
    scales = source.whole(f"layers.{layer}.{norm}")
    width, kept = basis.shape
    if kept == width:
        return {name: matrix, norm: scales}
    projected = basis.T @ (scales.unsqueeze(1) * matrix)
    length = (projected.norm() / matrix.norm().clamp(min=MIN_SQUARES)) * (width / kept) ** 0.5
    return {name: projected, norm: length.expand(kept).clone()}
