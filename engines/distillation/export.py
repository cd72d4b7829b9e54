"""Writes a model of `family.FAMILIES` as a new GGUF file, for llama.cpp, transformers and specchat.

`weights.write_llama_file` changes an existing file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datastores.errors import StoreError
from engines.distillation.model import LlamaShape
from engines.distillation.weights import ROPE_FACTORS, for_file, tensor_name

Q8_BLOCK = 32
"""Elements of a row that Q8_0 stores together."""


def write_llama(
    path: Path,
    name: str,
    shape: LlamaShape,
    weights: Mapping[str, Tensor],
    add_tokenizer: Callable[[Any], None],
    rope_factors: Tensor | None = None,
    *,
    quantised: bool = False,
) -> None:
    """Write `weights`, named as `Llama`'s parameters, to `path` atomically.

    Args:
        name: the model's display name.
        add_tokenizer: adds the vocabulary and any other metadata to a `gguf.GGUFWriter`.
        rope_factors: as in `weights.LlamaFile`.
        quantised: store matrices in Q8_0, where their rows allow it, instead of F16.

    Raises:
        StoreError: the file cannot be written.
    """
    from gguf import GGUFWriter, LlamaFileType

    fresh = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        writer = GGUFWriter(fresh, shape.family.name)
        writer.add_name(name)
        writer.add_file_type(LlamaFileType.MOSTLY_Q8_0 if quantised else LlamaFileType.MOSTLY_F16)
        _describe(writer, shape)
        add_tokenizer(writer)
        for key, weight in weights.items():
            _add(writer, tensor_name(key), for_file(key, weight, shape), quantised=quantised)
        if rope_factors is not None:
            writer.add_tensor(ROPE_FACTORS, rope_factors.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(fresh, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            fresh.unlink()


def _add(writer: Any, name: str, values: Tensor, *, quantised: bool) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    if quantised and values.ndim == 2 and values.shape[1] % Q8_BLOCK == 0:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quantize(values.float().contiguous().numpy(), kind), raw_dtype=kind)
        return
    stored = torch.float16 if values.ndim == 2 else torch.float32
    writer.add_tensor(name, np.ascontiguousarray(values.detach().to(stored).numpy()))


def add_sizes(writer: Any, shape: LlamaShape) -> None:
    """Add what files of every architecture say of `shape` to a `gguf.GGUFWriter`.

    The elements of a head that are rotated depend on the architecture, and are left out.
    """
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.rope_base)


def _describe(writer: Any, shape: LlamaShape) -> None:
    from gguf import RopeScalingType

    add_sizes(writer, shape)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_vocab_size(shape.vocabulary)
    if shape.rope_scale != 1.0:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(shape.rope_scale)
    if shape.window:
        writer.add_sliding_window(shape.window)
        writer.add_float32(f"{shape.family.name}.rope.freq_base_swa", shape.local_rope_base)
