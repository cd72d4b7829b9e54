"""The draft model's GGUF file: read into torch, and written with other weights.

A Llama's file rotates adjacent pairs of a head where training rotates halves, so the rows of q and
k are reordered. A file is written as a copy of another one whose weights are replaced, each in its
own type: metadata, vocabulary and offsets are identical, unless the feed-forward layers grow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datastores.errors import ModelError, StoreError
from engines.distillation.family import FAMILIES
from engines.distillation.model import Llama, LlamaShape

MAX_CONTEXT = 8192
"""Tokens of the longest text that can be learned from."""

_BLOCK = {
    "attn_norm.weight": "input_layernorm",
    "ffn_norm.weight": "post_attention_layernorm",
    "attn_q.weight": "q_proj",
    "attn_k.weight": "k_proj",
    "attn_v.weight": "v_proj",
    "attn_q.bias": "q_bias",
    "attn_k.bias": "k_bias",
    "attn_v.bias": "v_bias",
    "attn_q_norm.weight": "q_norm",
    "attn_k_norm.weight": "k_norm",
    "attn_output.weight": "o_proj",
    "post_attention_norm.weight": "attention_output_norm",
    "ffn_gate.weight": "gate_proj",
    "ffn_up.weight": "up_proj",
    "ffn_down.weight": "down_proj",
    "post_ffw_norm.weight": "feedforward_output_norm",
}
_WHOLE = {
    "token_embd.weight": "embed_tokens",
    "output_norm.weight": "norm",
    "output.weight": "lm_head",
}
ROPE_FACTORS = "rope_freqs.weight"
ROTATED = ("q_proj", "k_proj", "q_bias", "k_bias")
"""Parameters whose rows belong to rotated heads."""
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+\.\w+)")


@dataclass(frozen=True)
class LlamaFile:
    """The content of a GGUF file.

    Attributes:
        weights: float32, by the names of `Llama`'s parameters.
        rope_factors: float32 (head_size / 2,), if the file has them.
    """

    shape: LlamaShape
    weights: Mapping[str, Tensor]
    rope_factors: Tensor | None

    def model(self) -> Llama:
        """A model with these weights."""
        model = Llama(self.shape, self.rope_factors)
        model.load_state_dict(dict(self.weights))
        return model

    def grown(self, hidden: int) -> LlamaFile:
        """The same model with `hidden` neurons in each feed-forward layer, if it has fewer.

        New neurons have no effect yet: their output weights are zero.
        """
        more, weights = hidden - self.shape.hidden, dict(self.weights)
        if more <= 0:
            return self
        generator = torch.Generator().manual_seed(more)
        for name, values in self.weights.items():
            if name.endswith(("gate_proj", "up_proj")):
                drawn = torch.randn(more, self.shape.width, generator=generator)
                weights[name] = torch.cat((values, drawn * values.std()))
            elif name.endswith("down_proj"):
                weights[name] = torch.cat((values, torch.zeros(self.shape.width, more)), dim=1)
        return replace(self, shape=replace(self.shape, hidden=hidden), weights=weights)


def read_llama_file(path: Path) -> LlamaFile:
    """Read a Llama's GGUF file.

    Raises:
        ModelError: it cannot be read, is not a Llama, or has weights of a type or kind that cannot
            be trained.
    """
    reader = open_gguf(path)
    shape = read_shape(path, reader)
    weights: dict[str, Tensor] = {}
    factors: Tensor | None = None
    for tensor in reader.tensors:
        values = torch.from_numpy(read_values(path, tensor))
        if tensor.name == ROPE_FACTORS:
            factors = values
            continue
        name = parameter_name(path, tensor.name)
        weights[name] = from_file(name, values, shape)
    expected = dict(Llama(shape).state_dict())
    if {name: each.shape for name, each in weights.items()} != {
        name: each.shape for name, each in expected.items()
    }:
        raise ModelError(f"{path} cannot be trained: its tensors are not those of a Llama")
    return LlamaFile(shape, weights, factors)


def write_llama_file(source: Path, weights: Mapping[str, Tensor], destination: Path) -> None:
    """Write a copy of `source` with other `weights` (as in `LlamaFile`) to `destination`.

    Its feed-forward layers may have grown. The whole file is synced to disk when this returns; an
    error leaves none.

    Raises:
        ModelError: `source` cannot be read or is not a Llama of these sizes.
        StoreError: `destination` cannot be written.
    """
    reader = open_gguf(source)
    shape = read_shape(source, reader)
    has_grown = len(weights["layers.0.gate_proj"]) != shape.hidden
    try:
        if has_grown:
            _write_grown(source, reader, shape, weights, destination)
        with destination.open("r+b" if has_grown else "wb") as file:
            if not has_grown:
                for part in _parts(source, reader, shape, weights):
                    file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        destination.unlink(missing_ok=True)
        raise StoreError(f"cannot write {destination}: {error.strerror}") from error


def parameter_name(path: Path, tensor: str) -> str:
    """The name of `Llama`'s parameter for a tensor of the file at `path`.

    Raises:
        ModelError: a Llama has no such tensor.
    """
    if tensor in _WHOLE:
        return _WHOLE[tensor]
    match = _BLOCK_NAME.fullmatch(tensor)
    if match is None or match[2] not in _BLOCK:
        raise ModelError(f"{path} cannot be trained: it has a tensor {tensor}")
    return f"layers.{match[1]}.{_BLOCK[match[2]]}"


def tensor_name(parameter: str) -> str:
    """The name in a file of a parameter of `Llama`; the inverse of `parameter_name`."""
    for tensor, name in _WHOLE.items():
        if name == parameter:
            return tensor
    _, number, part = parameter.split(".")
    tensors = {name: tensor for tensor, name in _BLOCK.items()}
    return f"blk.{number}.{tensors[part]}"


def from_file(parameter: str, values: Tensor, shape: LlamaShape) -> Tensor:
    """A file's `values` of a parameter of `Llama`, in the order of training."""
    is_paired = shape.family.adjacent_pairs and parameter.endswith(ROTATED)
    return deinterleave(values, len(values) // shape.head_size) if is_paired else values


def for_file(parameter: str, values: Tensor, shape: LlamaShape) -> Tensor:
    """The inverse of `from_file`."""
    is_paired = shape.family.adjacent_pairs and parameter.endswith(ROTATED)
    return interleave(values, len(values) // shape.head_size) if is_paired else values


def interleave(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of q or k (heads * size, …) from halves to adjacent pairs."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def deinterleave(weight: Tensor, heads: int) -> Tensor:
    """The inverse of `interleave`."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def open_gguf(path: Path) -> Any:
    """A `gguf.GGUFReader`.

    Raises:
        ModelError: the file cannot be read.
    """
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as a GGUF file: {error}") from error


def read_shape(path: Path, reader: Any, *parts: Any) -> LlamaShape:
    """The sizes of the Llama in `reader`, which is the first of several `parts` if there are more.

    Raises:
        ModelError: the model is of no known family, or its sizes are missing.
    """

    def value(key: str, default: Any = None) -> Any:
        field = reader.fields.get(key)
        found = default if field is None else field.contents()
        if found is None:
            raise ModelError(f"{path} cannot be trained: it does not say its {key}")
        return found

    architecture = value("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelError(
            f"{path} cannot be trained: its architecture is {architecture}, which is none of"
            f" {', '.join(FAMILIES)}"
        )
    scaling = value(f"{architecture}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelError(f"{path} cannot be trained: its positions are scaled ({scaling})")
    names = {tensor.name: tensor for part in (reader, *parts) for tensor in part.tensors}
    if "token_embd.weight" not in names:
        raise ModelError(f"{path} cannot be trained: it has no tensor token_embd.weight")
    heads, width = (
        value(f"{architecture}.{key}") for key in ("attention.head_count", "embedding_length")
    )
    head_size = value(f"{architecture}.attention.key_length", width // heads)
    if value(f"{architecture}.rope.dimension_count", head_size) != head_size:
        raise ModelError(f"{path} cannot be trained: its heads are rotated only in part")
    return LlamaShape(
        layers=value(f"{architecture}.block_count"),
        width=width,
        hidden=value(f"{architecture}.feed_forward_length"),
        vocabulary=int(names["token_embd.weight"].shape[1]),
        heads=heads,
        kv_heads=value(f"{architecture}.attention.head_count_kv", heads),
        head_size=head_size,
        context=min(value(f"{architecture}.context_length"), MAX_CONTEXT),
        rope_base=value(f"{architecture}.rope.freq_base", 10000.0),
        epsilon=value(f"{architecture}.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in names,
        family=family,
        biases="blk.0.attn_q.bias" in names,
        rope_scale=value(f"{architecture}.rope.scaling.factor", 1.0) if scaling != "none" else 1.0,
        window=value(f"{architecture}.attention.sliding_window", 0) if family.whole_every else 0,
        local_rope_base=value(f"{architecture}.rope.freq_base_swa", 10000.0),
    )


def read_values(path: Path, tensor: Any, rows: slice = slice(None)) -> Any:
    """A tensor's weights, or some `rows` of them, as a new float32 array.

    Raises:
        ModelError: weights of this type cannot be read.
    """
    from gguf.quants import dequantize

    try:
        return np.array(dequantize(tensor.data[rows], tensor.tensor_type), dtype=np.float32)
    except NotImplementedError as error:
        raise ModelError(
            f"{path} cannot be trained: weights of type {tensor.tensor_type.name} cannot be read;"
            " choose a draft model in F16 or Q8_0"
        ) from error


def _parts(
    path: Path, reader: Any, shape: LlamaShape, weights: Mapping[str, Tensor]
) -> Iterator[bytes]:
    """The new file in pieces: the source's bytes, with the new weights in their places."""
    position = 0
    for tensor in sorted(reader.tensors, key=lambda each: each.data_offset):
        yield reader.data[position : tensor.data_offset].tobytes()
        position = tensor.data_offset + tensor.n_bytes
        raw = _encoded(path, tensor, shape, weights)
        if raw.nbytes != tensor.n_bytes:
            raise ModelError(f"{path} has other sizes than the trained draft model: {tensor.name}")
        yield raw.tobytes()
    yield reader.data[position:].tobytes()


def _write_grown(
    path: Path,
    reader: Any,
    shape: LlamaShape,
    weights: Mapping[str, Tensor],
    destination: Path,
) -> None:
    """Write a file with the source's metadata and types, and feed-forward layers from `weights`."""
    from gguf import GGUFWriter

    name = shape.family.name
    writer = GGUFWriter(destination, name)
    hidden = {f"{name}.feed_forward_length": len(weights["layers.0.gate_proj"])}
    copy_entries(reader, writer, "", hidden)
    for tensor in reader.tensors:
        raw = _encoded(path, tensor, shape, weights)
        writer.add_tensor(tensor.name, raw, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_entries(
    reader: Any, writer: Any, prefix: str, changed: Mapping[str, object] | None = None
) -> None:
    """Copy a file's metadata whose names begin with `prefix`, with the `changed` values."""
    for entry in reader.fields.values():
        if entry.name.startswith("GGUF.") or entry.name == "general.architecture":
            continue
        if entry.name.startswith(prefix):
            inner = entry.types[-1] if len(entry.types) > 1 else None
            value = (changed or {}).get(entry.name, entry.contents())
            writer.add_key_value(entry.name, value, entry.types[0], sub_type=inner)


def _encoded(path: Path, tensor: Any, shape: LlamaShape, weights: Mapping[str, Tensor]) -> Any:
    """The new weights of a tensor of the source, in its own type, as an array."""
    from gguf.quants import quantize

    if tensor.name == ROPE_FACTORS:
        return tensor.data
    name = parameter_name(path, tensor.name)
    values = for_file(name, weights[name].detach().float(), shape)
    try:
        return quantize(values.contiguous().numpy(), tensor.tensor_type)
    except NotImplementedError as error:
        raise ModelError(
            f"{path} cannot be trained: weights of type {tensor.tensor_type.name} cannot be"
            " written; choose a draft model in F16 or Q8_0"
        ) from error
