"""Headers of GGUF files, read within bounds and without llama.cpp.

A header takes a few megabytes at most, since it contains the tokenizer's word list. It may be
hostile: its counts never decide how much memory or time is spent, and nothing is read beyond
`MAX_HEADER` bytes. Layout: ggml's docs/gguf.md, section "File Structure".
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Protocol

from datastores.errors import ModelError
from datastores.tokens import common_prefix

_LOGGER = logging.getLogger("specchat.llama")

MAGIC = b"GGUF"
HEADER = struct.Struct("<4sIQQ")
VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 17
"""Maximum number of tensors or metadata entries: more than any model has."""
MAX_HEADER = 1 << 26
"""Maximum size of a header: four times that of one with 256,000 tokens and their merges."""
MAX_LIST = 1 << 10
"""Maximum length of a list that is kept: lists with an entry per layer are, word lists are not."""
MAX_KEPT = 1 << 17
"""Maximum total length of the lists that are kept."""
MAX_DIMENSIONS = 4
READ_SIZE = 1 << 20
DEFAULT_ALIGNMENT = 32
"""Alignment of tensors in bytes, unless the header has another."""
HEADS_NAME = re.compile(r"(?i)^mtp-|(?<![a-z0-9])(eagle-?3(?![0-9])|dflash|dspark)[-_.]?")
"""What the names of files of prediction heads have in common, in their model's folder."""
ARCHITECTURE = "general.architecture"
"""The key of the architecture's name."""
EAGLE, DFLASH = "eagle3", "dflash"
"""The architectures of EAGLE-3 and DFlash drafters."""

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

F16, Q8_0, Q4_0 = "f16", "q8_0", "q4_0"
KV_TYPES = {F16: (1, 2.0), Q8_0: (8, 34 / 32), Q4_0: (2, 18 / 32)}
"""Types of the KV cache by name: ggml's number of the type, and bytes per element.

After 900 tokens, passes of 1 and 8 rows took 1.06 and .87 of f16's time with q8_0, .95 and 2.15
with q4_0 (94 M weights of width 1,024, two threads)."""

F32 = 0
"""ggml's number of the type."""
MAX_NORM_BYTES = 1 << 18
"""Largest norm: four times as wide as those of the widest models."""

Value = int | float | bool | str | list[int]


def check_header(path: Path) -> None:
    """Check the first 24 bytes; llama.cpp reads the rest.

    Raises:
        ModelError: it is missing, unreadable, not GGUF, of an unknown version, or truncated.
    """
    raw = _first_bytes(path)
    if raw[:4] != MAGIC:
        raise ModelError(
            f"{path} is not a GGUF file: specchat runs GGUF models;"
            " choose one with --model, or omit --model for the built-in one"
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
        raise ModelError(f"no model file {path}: check --model") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory: give the GGUF file itself") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged ({reason}): download it again")


EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"
"""The matrices with a row for each token."""
DRAFT_VOCABULARY = "d2t"
"""The tokens that such a drafter can draft."""
MARKOV = "markov_w1.weight"
"""A part of DSpark drafters."""
NORM = "output_norm.weight"
"""The scales of the final norm."""
_TABLES = (EMBEDDINGS, OUTPUT, DRAFT_VOCABULARY, MARKOV, NORM)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's type and place in its file.

    Attributes:
        kind: ggml's number of its type.
        shape: dimensions, the length of a row first.
        offset: position of its first byte after the end of the header.
    """

    kind: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of a header.

    Attributes:
        values: scalars, strings and short lists of integers, by key.
        weights: number of weights, by ggml's number of their type.
        tables: `EMBEDDINGS`, `OUTPUT`, `DRAFT_VOCABULARY`, `MARKOV` and `NORM`, if this file has
            them.
        size: bytes of the header, padding included.
    """

    values: dict[str, Value]
    weights: dict[int, int]
    tables: dict[str, Tensor] = field(default_factory=dict)
    size: int = 0

    @property
    def architecture(self) -> str:
        """Such as `llama`; empty if the file does not say."""
        return self.text(ARCHITECTURE)

    @property
    def parameters(self) -> int:
        """Number of weights in this file."""
        return sum(self.weights.values())

    def text(self, key: str) -> str:
        """A string by its full key; empty if there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """An integer, or the maximum of a list, by its key without the architecture's prefix."""
        value = self.values.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            return max(value, default=default)
        return int(value) if isinstance(value, int) else default

    def total(self, key: str, layers: int, default: int = 0) -> int:
        """The sum over `layers` of a number that is given once for all layers, or for each."""
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
            return read_metadata_from(file, path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def read_norm(path: Path) -> bytes:
    """The scales of the final norm, as they are stored; empty if it has none in float32.

    Raises:
        ModelError: as `read_metadata`, or the norm is not in the file.
    """
    metadata = read_metadata(path)
    tensor = metadata.tables.get(NORM)
    if tensor is None or tensor.kind != F32:
        return b""
    size = 4 * prod(tensor.shape)
    if size > MAX_NORM_BYTES:
        raise _damaged(path, f"its final norm has {size} bytes")
    try:
        with path.open("rb") as file:
            file.seek(metadata.size + tensor.offset)
            scales = file.read(size)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if len(scales) < size:
        raise _damaged(path, "it ends before its final norm does")
    return scales


def heads_file(model: Path, architecture: str) -> Path | None:
    """The file of prediction heads in the folder of `model` whose name is most similar, or None."""
    fitting = [
        path
        for path in sorted(model.parent.glob("*.gguf"))
        if HEADS_NAME.search(path.stem)
        and path != model
        and _architecture(path) in (architecture, f"{architecture}-assistant", EAGLE, DFLASH)
    ]
    stem = model.stem.lower().encode()

    def similarity(path: Path) -> int:
        return common_prefix(stem, HEADS_NAME.sub("", path.stem).lower().encode())

    return max(fitting, key=similarity, default=None)


def _architecture(path: Path) -> str:
    try:
        return read_metadata(path).architecture
    except ModelError as error:
        _LOGGER.info("%s", error)
        return ""


class ReadableBytes(Protocol):
    """A binary file, local or remote, open for reading."""

    def read(self, size: int, /) -> bytes: ...


def read_metadata_from(file: ReadableBytes, path: Path) -> Metadata:
    """Read the header at the beginning of `file`; `path` is for error messages.

    Raises:
        ModelError: not GGUF, of an unknown version, damaged or beyond the bounds.
    """
    return _parse(_HeaderReader(path, file))


class _HeaderReader:
    """Reads a header sequentially; keeps the bytes read so far."""

    def __init__(self, path: Path, file: ReadableBytes) -> None:
        self._path = path
        self._file = file
        self._bytes = bytearray()
        self._offset = 0
        self._kept = 0

    def damaged(self, reason: str) -> ModelError:
        """The error to raise about this header."""
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
        """The next string; invalid UTF-8 is replaced."""
        return self.take(self.integer(_U64)).decode("utf-8", "replace")

    def may_keep(self, count: int) -> bool:
        """Whether a further list of `count` integers may be kept."""
        self._kept += count
        return count <= MAX_LIST and self._kept <= MAX_KEPT

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
        """Read on by `size` bytes, and return the offset at which they start."""
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
    tables: dict[str, Tensor] = {}
    for name, tensor in _tensors(header, tensors):
        weights[tensor.kind] = weights.get(tensor.kind, 0) + prod(tensor.shape)
        if name in _TABLES:
            tables[name] = tensor
    alignment = values.get("general.alignment")
    if not isinstance(alignment, int) or alignment < 1:
        alignment = DEFAULT_ALIGNMENT
    return Metadata(values, weights, tables, -(-header.skip(0) // alignment) * alignment)


def _entries(header: _HeaderReader, count: int) -> Iterator[tuple[str, Value]]:
    for _ in range(count):
        key = header.text()
        value = _value(header, header.integer(_U32))
        if value is not None:
            yield key, value


def _value(header: _HeaderReader, kind: int) -> Value | None:
    """The next value; None for a list that is not kept."""
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
    if kind in _INTEGERS and header.may_keep(count):
        return [header.integer(_SCALARS[kind]) for _ in range(count)]
    header.skip(count * _SCALARS[kind].size)
    return None


def _tensors(header: _HeaderReader, count: int) -> Iterator[tuple[str, Tensor]]:
    for _ in range(count):
        name, dimensions = header.text(), header.integer(_U32)
        if dimensions > MAX_DIMENSIONS:
            raise header.damaged(f"it holds a tensor of {dimensions} dimensions")
        shape = tuple(header.integer(_U64) for _ in range(dimensions))
        yield name, Tensor(header.integer(_U32), shape, header.integer(_U64))
