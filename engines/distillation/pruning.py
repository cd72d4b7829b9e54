"""A draft model pruned out of its target: some layers of it, on the main directions of its stream.

What the target's weights know need not be learned again from a person's few answers. Weight
subcloning (Samragh et al. 2023, arXiv 2312.09299) begins small models like this, and Minitron
(Muralidharan et al. 2024, arXiv 2407.14679) goes on by distillation, as `trainer` does.

Depth: the first layer, without which the others read nothing, and others at equal distances.
Width: the residual stream is projected on its main directions, as in SliceGPT (Ashkboos et al.
2024, arXiv 2401.15024). RMSNorm commutes with rotations once its scales are multiplied into the
matrices behind it (theorem 1 there), so only what the other directions hold is lost. SliceGPT takes
the directions from states; a draft model is made before there are any, so they are those of the
weights that read from the stream and write to it. Neurons: those of the largest weights.

Owns what is kept. Refuses to know how it is trained, and where the file goes. Plain Llamas only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engines.distillation.weights import (
    ROPE_FACTORS,
    StudentFile,
    deinterleave,
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
"""The matrices of a layer that read from the stream, each with the norm before it."""
WRITERS = ("o_proj", "down_proj")
"""Those that write to it."""
PIECE_ROWS = 4096
"""Rows of a matrix that are read at a time: the whole of a large target would not fit in memory."""

MIN_SQUARES = 1e-12
"""Below any matrix's sum of squares but that of zeros, as in layers added by `llama.enlarge`."""


def prune(target: Path, *parts: Path, layers: int, width: int, hidden: int) -> StudentFile:
    """Prune the Llama in `target`, a GGUF file, or in this first file and its other `parts`.

    Where the sizes leave everything as it is, the result is the target itself, but that its stream
    is rotated.

    Args:
        layers: at most. width: of the residual stream, at most. hidden: neurons of a feed-forward
            layer, at most.

    Raises:
        ModelError: it cannot be read, is no plain Llama, or has weights of a type that cannot be
            read.
    """
    source = _Target(target, *parts)
    whole = source.shape
    kept = kept_layers(whole.layers, layers)
    basis = _main_directions(source, kept, min(width, whole.width))
    # RMSNorm divides by √(Σx² / width + ε): the same x over a smaller width are divided by more.
    smaller = whole.width / basis.shape[1]
    scale = torch.full((basis.shape[1],), smaller**0.5)
    weights = {
        "embed_tokens": source.projected("embed_tokens", basis),
        "norm": scale,
        "lm_head": source.projected(source.output, basis, "norm"),
    }
    for place, layer in enumerate(kept):
        pruned = _pruned_layer(source, layer, basis, hidden)
        pruned |= dict.fromkeys(READERS.values(), scale)
        weights |= {f"layers.{place}.{name}": weight for name, weight in pruned.items()}
    shape = replace(
        whole,
        layers=len(kept),
        width=basis.shape[1],
        hidden=len(weights["layers.0.gate_proj"]),
        epsilon=whole.epsilon * smaller,
        tied=False,
    )
    return StudentFile(shape, weights, source.rope_factors)


def kept_layers(layers: int, count: int) -> list[int]:
    """Which `count` of so many layers are kept, at most: at equal distances from the first on."""
    kept = min(layers, count)
    return [place * layers // kept for place in range(kept)]


class _Target:
    """The target's matrices, by the names of `Llama`'s parameters.

    Attributes:
        output: name of its output matrix.
        rope_factors: as in `StudentFile`.
    """

    def __init__(self, path: Path, *parts: Path) -> None:
        """Raises ModelError: it cannot be read, or is no plain Llama."""
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
        """The rows of a matrix (rows, columns), some at a time, times the weights of the `norm`
        before it."""
        tensor = self._tensors[name]
        scale = 1.0 if norm is None else self._values(self._tensors[norm])
        for first in range(0, len(tensor.data), PIECE_ROWS):
            yield self._values(tensor, slice(first, first + PIECE_ROWS)) * scale

    def whole(self, name: str) -> Tensor:
        """A matrix."""
        return torch.cat(list(self.pieces(name)))

    def projected(self, name: str, basis: Tensor, norm: str | None = None) -> Tensor:
        """The rows of a matrix on the columns of `basis` (columns, width)."""
        rows = torch.cat([piece @ basis for piece in self.pieces(name, norm)])
        if name.endswith(("q_proj", "k_proj")):
            return deinterleave(rows, len(rows) // self.shape.head_size)
        return rows


def _main_directions(source: _Target, layers: Sequence[int], count: int) -> Tensor:
    """The orthonormal columns (target's width, `count`) that hold most of what is read from the
    stream and written to it, each matrix counting the same."""
    width = source.shape.width
    moments = torch.zeros(width, width)
    for rows in _stream_rows(source, layers):
        moments += rows.T @ rows / rows.square().sum().clamp(min=MIN_SQUARES)
    vectors: Tensor = torch.linalg.eigh(moments).eigenvectors
    return vectors.flip(1)[:, :count].contiguous()


def _stream_rows(source: _Target, layers: Sequence[int]) -> Iterator[Tensor]:
    """Vectors in the stream's space, (n, target's width), of one matrix after the other.

    A piece of each is enough: vocabularies begin with their frequent tokens, and neurons have no
    order.
    """
    yield next(source.pieces("embed_tokens"))
    yield next(source.pieces(source.output, "norm"))
    for layer in layers:
        for name, norm in READERS.items():
            yield next(source.pieces(f"layers.{layer}.{name}", f"layers.{layer}.{norm}"))
        for name in WRITERS:
            yield source.whole(f"layers.{layer}.{name}").T[:PIECE_ROWS]


def _pruned_layer(source: _Target, layer: int, basis: Tensor, hidden: int) -> dict[str, Tensor]:
    """The matrices of a layer on the directions of `basis`, with its largest neurons."""
    found = {
        name: source.projected(f"layers.{layer}.{name}", basis, f"layers.{layer}.{norm}")
        for name, norm in READERS.items()
    }
    found |= {name: basis.T @ source.whole(f"layers.{layer}.{name}") for name in WRITERS}
    gate, up, down = found["gate_proj"], found["up_proj"], found["down_proj"]
    size = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    neurons = size.topk(min(hidden, len(size))).indices.sort().values
    kept = {"gate_proj": gate[neurons], "up_proj": up[neurons], "down_proj": down[:, neurons]}
    return found | kept
