"""GGUF files as files: what a header says, read within bounds, and copies with more layers.

Imports nothing of llama.cpp. Reading takes the header only, a few megabytes at most (the
tokenizer's word list is in it). A header may be hostile: no count in it is trusted with memory or
time, and nothing is read beyond `MAX_HEADER` bytes. Layout: ggml's docs/gguf.md, section "File
Structure".
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from datastores.errors import ModelError

MAGIC = b"GGUF"
HEADER = struct.Struct("<4sIQQ")
VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 20
"""More tensors or metadata entries than any model has: such counts come from a damaged file."""
MAX_HEADER = 1 << 26
"""Bytes of a header: one with 256,000 tokens and their merges takes a quarter of it."""
MAX_LIST = 1 << 10
"""Elements of a list that is kept: one for each layer at most. Word lists are only skipped."""
MAX_DIMENSIONS = 4
READ_SIZE = 1 << 20

_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_STRING, _ARRAY = 8, 9
_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 10, 11)

Value = int | float | bool | str | list[int]


def check_header(path: Path) -> None:
    """Read the first 24 bytes, to refuse what is not a model; llama.cpp reads the rest.

    Raises:
        ModelError: it is missing, unreadable, not GGUF, of an unknown version, or truncated.
    """
    raw = _first_bytes(path)
    if raw[:4] != MAGIC:
        raise ModelError(
            f"{path} is not a GGUF file: specchat runs GGUF models;"
            " choose one with --model, or leave --model out for the embedded one"
        )
    if len(raw) < HEADER.size:
        raise _damaged(path, "it ends within its header")
    _, version, tensors, entries = HEADER.unpack(raw)
    if version not in VERSIONS:
        raise ModelError(
            f"{path} is GGUF version {version}; specchat reads versions 2 and 3, little-endian:"
            " convert it with a current llama.cpp"
        )
    if tensors > MAX_ENTRIES or entries > MAX_ENTRIES:
        raise _damaged(path, f"it claims {tensors} tensors and {entries} metadata entries")


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEADER.size)
    except FileNotFoundError:
        raise ModelError(f"there is no model file {path}: check --model") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory: give the GGUF file itself") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged ({reason}): download it again")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of a header.

    Attributes:
        values: single values and short lists of integers by key; other lists are left out.
        weights: number of weights by ggml's number of their type.
    """

    values: dict[str, Value]
    weights: dict[int, int]

    @property
    def architecture(self) -> str:
        """Such as `llama`; empty where the file does not say."""
        return self.text("general.architecture")

    @property
    def parameters(self) -> int:
        """Number of weights in this file."""
        return sum(self.weights.values())

    def text(self, key: str) -> str:
        """A string by its full key; empty where there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """An integer by its key without the architecture's prefix; of a list, the largest."""
        value = self.values.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            return max(value, default=default)
        return int(value) if isinstance(value, int) else default

    def total(self, key: str, layers: int, default: int = 0) -> int:
        """The sum over `layers` of a number that is given once for all, or once for each."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list):
            return sum(value[:layers])
        return layers * self.number(key, default)


def read_metadata(path: Path) -> Metadata:
    """Read the header of a GGUF file.

    Raises:
        ModelError: unreadable, not GGUF, of an unknown version, damaged or beyond the bounds.
    """
    try:
        with path.open("rb") as file:
            return _parse(_HeaderReader(path, file))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


class _HeaderReader:
    """A position in a header, and the bytes read so far."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._bytes = bytearray()
        self._offset = 0

    def damaged(self, reason: str) -> ModelError:
        """The error to raise over this header."""
        return _damaged(self._path, reason)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.skip(size)
        return bytes(self._bytes[start : start + size])

    def scalar(self, kind: struct.Struct) -> int | float:
        """The next number."""
        value: int | float = kind.unpack_from(self._bytes, self.skip(kind.size))[0]
        return value

    def integer(self, kind: struct.Struct) -> int:
        """The next integer."""
        return int(self.scalar(kind))

    def text(self) -> str:
        """The next string; what is not UTF-8 in it is replaced."""
        return self.take(self.integer(_U64)).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Skip `count` strings. Each has at least eight bytes, so `MAX_HEADER` bounds the time."""
        length = _U64.unpack_from
        for _ in range(count):
            try:
                self._offset += _U64.size + length(self._bytes, self._offset)[0]
            except (struct.error, OverflowError):  # beyond the bytes read so far
                self.skip(self.integer(_U64))
        self.skip(0)

    def skip(self, size: int) -> int:
        """Move on by `size` bytes, which are read then; returns the offset where they start."""
        start, end = self._offset, self._offset + size
        if end > MAX_HEADER:
            raise self.damaged("its header is longer than any model's")
        while len(self._bytes) < end:
            more = self._file.read(max(READ_SIZE, end - len(self._bytes)))
            if not more:
                raise self.damaged("it ends within its header")
            self._bytes += more
        self._offset = end
        return start


def _parse(header: _HeaderReader) -> Metadata:
    magic, version, tensors, entries = HEADER.unpack(header.take(HEADER.size))
    if magic != MAGIC:
        raise header.damaged("it is not a GGUF file")
    if version not in VERSIONS:
        raise header.damaged(f"it is GGUF version {version}")
    if tensors > MAX_ENTRIES or entries > MAX_ENTRIES:
        raise header.damaged(f"it claims {tensors} tensors and {entries} metadata entries")
    values = dict(_entries(header, entries))
    weights: dict[int, int] = {}
    for kind, count in _tensors(header, tensors):
        weights[kind] = weights.get(kind, 0) + count
    return Metadata(values, weights)


def _entries(header: _HeaderReader, count: int) -> Iterator[tuple[str, Value]]:
    for _ in range(count):
        key = header.text()
        value = _value(header, header.integer(_U32))
        if value is not None:
            yield key, value


def _value(header: _HeaderReader, kind: int) -> Value | None:
    """One value; None for a list that is not kept."""
    if kind == _STRING:
        return header.text()
    if kind == _ARRAY:
        return _list(header, header.integer(_U32), header.integer(_U64))
    if kind not in _SCALARS:
        raise header.damaged(f"it holds a value of the unknown type {kind}")
    return header.scalar(_SCALARS[kind])


def _list(header: _HeaderReader, kind: int, count: int) -> list[int] | None:
    if kind == _STRING:
        header.skip_texts(count)
        return None
    if kind not in _SCALARS:
        raise header.damaged(f"it holds a list of the unknown type {kind}")
    if kind in _INTEGERS and count <= MAX_LIST:
        return [header.integer(_SCALARS[kind]) for _ in range(count)]
    header.skip(count * _SCALARS[kind].size)
    return None


def _tensors(header: _HeaderReader, count: int) -> Iterator[tuple[int, int]]:
    """(type, number of weights) of each tensor."""
    for _ in range(count):
        header.skip(header.integer(_U64))
        dimensions = header.integer(_U32)
        if dimensions > MAX_DIMENSIONS:
            raise header.damaged(f"it holds a tensor of {dimensions} dimensions")
        weights = prod(header.integer(_U64) for _ in range(dimensions))
        yield header.integer(_U32), weights
        header.skip(_U64.size)


_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_OUTPUTS = ("attn_output.", "ffn_down.")
"""What a block adds to the residual stream goes through these. In every ggml type, zero bytes are
zero weights: their scales are zero."""
ADDED_LAYERS = "specchat.added_layers"


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    data: Any
    kind: Any


def deepen(source: Path, layers: int, destination: Path) -> None:
    """Write a copy of `source` that has `layers` more layers and generates the same tokens.

    It has the costs of a larger model, for benchmarks; figures taken on one must say so. Each added
    layer is a copy of the last one with zero output projections (attention, feed-forward): it does
    all its work and adds nothing to the residual stream. Plain transformers only. `destination`
    is written whole or not at all.

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
        writer.add_uint32(ADDED_LAYERS, layers)
        _write(writer, [*_original(reader), *_added(reader, blocks, layers)])
        os.replace(partial, destination)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)


def _count_blocks(source: Path, reader: Any) -> int:
    """Blocks of a file whose last block can be copied."""
    found = [match for tensor in reader.tensors if (match := _BLOCK.fullmatch(tensor.name))]
    last = max((int(match[1]) for match in found), default=-1)
    parts = [match[2] for match in found if int(match[1]) == last]
    missing = [name for name in _OUTPUTS if not any(part.startswith(name) for part in parts)]
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
    """Copies of the last block, their output projections zero."""
    import numpy as np

    prefix = f"blk.{blocks - 1}."
    last = [tensor for tensor in reader.tensors if tensor.name.startswith(prefix)]
    for block in range(blocks, blocks + layers):
        for tensor in last:
            part = tensor.name.removeprefix(prefix)
            data = np.zeros_like(tensor.data) if part.startswith(_OUTPUTS) else tensor.data
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
