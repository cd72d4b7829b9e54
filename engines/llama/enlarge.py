"""Larger copies of a model that generate the same tokens: wider, deeper, or both.

They have the costs of a larger model, for benchmarks; figures measured on one must say so.

Wider by k: every matrix is padded with zeros to k times its rows and columns, heads and neurons
included, so everything added to the residual stream is zero. RMSNorm (Zhang and Sennrich
2019, eq. 4) divides by √(Σx²/d + ε); over a padded vector of k·d elements it divides by
√(Σx²/(k·d) + ε'), which with ε' = ε/k is 1/√k of that. So its weights are scaled by 1/√k. This is
exact in real arithmetic; where √k is a power of two (k = 4, 16), the scaling rounds nothing.

Deeper by n: each added layer is a copy of the last one with zero output projections (attention,
feed-forward), which does all its work and adds nothing to the residual stream.

Supports plain transformers, with or without a prediction head, which is widened likewise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

from datastores.errors import ModelError

ARCHITECTURES = ("llama", "step35")
"""Architectures that can be widened: RMSNorm over the whole width only, no other use of ε, and no
scale that depends on the width."""
WIDENED_SIZES = (
    "embedding_length",
    "feed_forward_length",
    "expert_feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
)
EPSILON = "attention.layer_norm_rms_epsilon"
WIDER, DEEPER = "specchat.wider", "specchat.added_layers"

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_OUTPUTS = ("attn_output.", "ffn_down.")
"""The tensors through which a block adds to the residual stream. In every ggml type, zero bytes are
zero weights, since their scales are zero."""
_INNER = re.compile(r"(blk\.\d+\.)?(attn_(q|k|v|output)|ffn_(gate|up|down))\.(weight|bias)")
"""Tensors whose axes are all padded."""
_VOCABULARY = ("token_embd.weight", "output.weight")
"""Tensors of [vocabulary, width], whose last axis is padded."""
_NORM = re.compile(
    r"(blk\.\d+\.)?(attn_norm|ffn_norm|output_norm|nextn\.(enorm|hnorm|shared_head_norm))\.weight"
)
_HEAD = re.compile(r"blk\.\d+\.nextn\..+")
_JOINED = re.compile(r"blk\.\d+\.nextn\.eh_proj\.weight")
"""Multiplies an embedding joined to a state, so each half of a row is padded."""
_UNCHANGED = ("rope_freqs.weight",)
"""One value for each pair of dimensions of a head, whose size stays."""


@dataclass(frozen=True, slots=True)
class Enlargement:
    """How a copy is larger.

    Attributes:
        wider: factor of the width, the heads and the feed-forward layer.
        deeper: number of layers added.
    """

    wider: int = 1
    deeper: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError if a model would shrink."""
        if self.wider < 1 or self.deeper < 0:
            raise ValueError(f"{self.wider} times as wide, {self.deeper} layers added: not larger")

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.wider > 1 or self.deeper > 0

    def __str__(self) -> str:
        """For display after a model's name, such as ", 4 times as wide, 8 layers added"."""
        parts = [f", {self.wider} times as wide"] if self.wider > 1 else []
        return "".join(parts + ([f", {self.deeper} layers added"] if self.deeper else []))


AS_IT_IS = Enlargement()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor to write; `data` computes it, so that only one is in memory at a time."""

    name: str
    shape: tuple[int, ...]
    kind: Any
    dtype: Any
    data: Callable[[], Any]


def enlarge(source: Path, larger: Enlargement, destination: Path) -> None:
    """Write a copy of `source` that is larger by `larger` and generates the same tokens.

    `destination` is written atomically.

    Raises:
        ModelError: `source` cannot be read, or is of a kind that cannot be enlarged.
    """
    from gguf import GGUFReader, GGUFWriter

    try:
        reader = GGUFReader(source)
        architecture = reader.fields["general.architecture"].contents()
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{source} cannot be enlarged: {error}") from error
    _check(source, reader, architecture, larger)
    destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = destination.with_suffix(f".{os.getpid()}.partial")
    writer = GGUFWriter(partial, architecture)
    try:
        _copy_metadata(reader, writer, architecture, larger)
        writer.add_uint32(WIDER, larger.wider)
        writer.add_uint32(DEEPER, larger.deeper)
        _write(writer, list(_tensors(reader, larger)))
        os.replace(partial, destination)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)


def _check(source: Path, reader: Any, architecture: str, larger: Enlargement) -> None:
    """Raise ModelError if this kind of model cannot be enlarged by `larger`."""
    names = [tensor.name for tensor in reader.tensors]
    last = f"blk.{_count_blocks(reader) - 1}."
    for output in _OUTPUTS:
        if not any(name.startswith(last + output) for name in names):
            raise ModelError(f"{source} cannot be enlarged: its blocks have no {output}weight")
    if larger.deeper and any(map(_HEAD.fullmatch, names)):
        raise ModelError(f"{source} cannot be deepened: its last block is a prediction head")
    if larger.wider == 1:
        return
    if architecture not in ARCHITECTURES:
        wanted = " or ".join(ARCHITECTURES)
        raise ModelError(
            f"{source} cannot be widened: its architecture is {architecture}, not {wanted}"
        )
    for tensor in reader.tensors:
        if not _can_be_widened(tensor):
            raise ModelError(f"{source} cannot be widened: it has a tensor {tensor.name}")


def _can_be_widened(tensor: Any) -> bool:
    name = tensor.name
    if _NORM.fullmatch(name):
        return bool(tensor.data.dtype == "float32")  # it is scaled, not only padded
    inner = _INNER.fullmatch(name) or _JOINED.fullmatch(name)
    return name in _VOCABULARY or name in _UNCHANGED or bool(inner)


def _count_blocks(reader: Any) -> int:
    found = (_BLOCK.fullmatch(tensor.name) for tensor in reader.tensors)
    return max((int(match[1]) for match in found if match), default=-1) + 1


def _copy_metadata(reader: Any, writer: Any, architecture: str, larger: Enlargement) -> None:
    """Copy the metadata, with sizes and ε of the larger model."""
    from gguf import GGUFValueType

    sizes = {f"{architecture}.{name}" for name in WIDENED_SIZES}
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", WIDER, DEEPER):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        value = field.contents()
        if field.name == f"{architecture}.block_count":
            value += larger.deeper
        elif field.name in sizes:
            value = [larger.wider * one for one in value] if inner else larger.wider * value
        elif field.name == f"{architecture}.{EPSILON}":
            value /= larger.wider
        writer.add_key_value(field.name, value, kind, sub_type=inner)


def _tensors(reader: Any, larger: Enlargement) -> Iterator[_Tensor]:
    """The tensors of the copy, added layers included."""
    blocks = _count_blocks(reader)
    last = f"blk.{blocks - 1}."
    for tensor in reader.tensors:
        yield _widened(tensor, tensor.name, larger.wider)
    for block in range(blocks, blocks + larger.deeper):
        for tensor in reader.tensors:
            if tensor.name.startswith(last):
                part = tensor.name.removeprefix(last)
                added = _widened(tensor, f"blk.{block}.{part}", larger.wider)
                yield _zero(added) if part.startswith(_OUTPUTS) else added


def _zero(tensor: _Tensor) -> _Tensor:
    import numpy as np

    shape, dtype = tensor.shape, tensor.dtype
    return _Tensor(tensor.name, shape, tensor.kind, dtype, lambda: np.zeros(shape, dtype))


def _widened(tensor: Any, name: str, wider: int) -> _Tensor:
    """A tensor of the source under a new name, padded with zeros.

    The last axis of `data` holds weights or the bytes of quantised blocks, and grows by the same
    factor either way.
    """
    import numpy as np

    data = tensor.data
    shape = _widened_shape(tensor.name, data.shape, wider)
    if shape == data.shape:
        return _Tensor(name, shape, tensor.tensor_type, data.dtype, lambda: data)
    scale = 1.0 / sqrt(wider) if _NORM.fullmatch(tensor.name) else 1.0
    parts = 2 if _JOINED.fullmatch(tensor.name) else 1

    def padded() -> Any:
        rows = data.reshape(*data.shape[:-1], parts, -1)
        larger = np.zeros((*shape[:-1], parts, shape[-1] // parts), data.dtype)
        larger[tuple(map(slice, rows.shape))] = rows if scale == 1.0 else rows * scale
        return larger.reshape(shape)

    return _Tensor(name, shape, tensor.tensor_type, data.dtype, padded)


def _widened_shape(name: str, shape: tuple[int, ...], wider: int) -> tuple[int, ...]:
    if name in _UNCHANGED:
        return shape
    if name in _VOCABULARY:
        return (*shape[:-1], wider * shape[-1])
    return tuple(wider * size for size in shape)


def _write(writer: Any, tensors: list[_Tensor]) -> None:
    for tensor in tensors:
        size = prod(tensor.shape) * tensor.dtype.itemsize
        writer.add_tensor_info(tensor.name, tensor.shape, tensor.dtype, size, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(tensor.data())
