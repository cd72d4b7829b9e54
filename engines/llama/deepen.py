"""A deeper copy of a small GGUF model that writes the same tokens: a large one's costs, for study.

Each added layer is a copy of the last one with zero output projections (attention, feed-forward):
all its work is done, and nothing is added to the residual stream. Figures taken on such a model
must say so. Knows plain transformer files; refuses others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datastores.errors import ModelError

BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
OUTPUTS = ("attn_output.", "ffn_down.")
"""What a block adds to the residual stream goes through these. In every ggml type, zero bytes are
zero weights: their scales are zero."""
ADDED = "specchat.added_layers"


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    data: Any
    kind: Any


def deepen(source: Path, layers: int, destination: Path) -> None:
    """Write `source` with `layers` more layers to `destination`, which appears whole or not at all.

    Raises:
        ModelError: `source` cannot be read, or has no layers that can be copied this way.
        ValueError: `layers` is negative.
    """
    if layers < 0:
        raise ValueError(f"{layers} layers cannot be added")
    from gguf import GGUFReader, GGUFWriter

    try:
        reader = GGUFReader(source)
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(f"{source} cannot be deepened: {error}") from error
    blocks = _count_blocks(source, reader)
    architecture = reader.fields["general.architecture"].contents()
    destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = destination.with_suffix(f".{os.getpid()}.partial")
    writer = GGUFWriter(partial, architecture)
    try:
        _copy_metadata(reader, writer, f"{architecture}.block_count", blocks + layers)
        writer.add_uint32(ADDED, layers)
        _write(writer, [*_original(reader), *_added(reader, blocks, layers)])
        os.replace(partial, destination)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)


def _count_blocks(source: Path, reader: Any) -> int:
    """Blocks of a file whose last block can be copied."""
    found = [match for tensor in reader.tensors if (match := BLOCK.fullmatch(tensor.name))]
    last = max((int(match[1]) for match in found), default=-1)
    parts = [match[2] for match in found if int(match[1]) == last]
    missing = [name for name in OUTPUTS if not any(part.startswith(name) for part in parts)]
    if missing:
        raise ModelError(f"{source} cannot be deepened: its blocks have no {missing[0]}weight")
    return last + 1


def _copy_metadata(reader: Any, writer: Any, block_count: str, blocks: int) -> None:
    from gguf import GGUFValueType

    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        value = blocks if field.name == block_count else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=inner)


def _original(reader: Any) -> Iterator[_Tensor]:
    return (_Tensor(tensor.name, tensor.data, tensor.tensor_type) for tensor in reader.tensors)


def _added(reader: Any, blocks: int, layers: int) -> Iterator[_Tensor]:
    """Copies of the last block, their outputs zero."""
    prefix = f"blk.{blocks - 1}."
    last = [tensor for tensor in reader.tensors if tensor.name.startswith(prefix)]
    for block in range(blocks, blocks + layers):
        for tensor in last:
            part = tensor.name.removeprefix(prefix)
            silent = part.startswith(OUTPUTS)
            data = np.zeros_like(tensor.data) if silent else tensor.data
            yield _Tensor(f"blk.{block}.{part}", data, tensor.tensor_type)


def _write(writer: Any, tensors: list[_Tensor]) -> None:
    for tensor in tensors:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(tensor.data)
