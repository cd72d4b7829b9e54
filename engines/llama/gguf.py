"""What a GGUF file says about itself: metadata and the shapes of its tensors, read within bounds.

Reads the header only, a few megabytes at most (the tokenizer's word list lies in it), and loads
nothing of llama.cpp. A header may be hostile: no count in it is trusted with memory or time, and
nothing is read beyond `LONGEST` bytes. Layout: ggml's docs/gguf.md, section "File Structure".

The first bytes of a GGUF file: enough to refuse, with a plain reason, what is no model at all.

Reads 24 bytes; llama.cpp reads the rest. Layout: ggml's docs/gguf.md, section "File Structure".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from datastores.errors import ModelError

MAGIC = b"GGUF"
HEADER = struct.Struct("<4sIQQ")
VERSIONS = (2, 3)
MOST = 1 << 20
"""More tensors or metadata entries than any model has: such counts come from a damaged file."""


def check_header(path: Path) -> None:
    """Look at the file's beginning.

    Raises:
        ModelError: it is missing, unreadable, no GGUF, of an unknown version, or cut off.
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
    if tensors > MOST or entries > MOST:
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


Value = int | float | bool | str | list[int]

LONGEST = 1 << 26
"""Bytes of a header: one with 256,000 tokens and their merges takes a quarter of it."""
SHORT = 1 << 10
"""Elements of a list that is kept: one for each layer at most. Word lists are only walked over."""
DIMENSIONS = 4
CHUNK = 1 << 20

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
_WHOLE = (0, 1, 2, 3, 4, 5, 7, 10, 11)


@dataclass(frozen=True, slots=True)
class Metadata:
    """A header's content.

    Attributes:
        values: single values and short lists of whole numbers by key; word lists are left out.
        weights: number of weights by ggml's number of their type.
    """

    values: dict[str, Value]
    weights: dict[int, int]

    @property
    def architecture(self) -> str:
        """Such as `llama`; empty where the file does not tell."""
        return self.text("general.architecture")

    @property
    def parameters(self) -> int:
        """Number of weights in this file."""
        return sum(self.weights.values())

    def text(self, key: str) -> str:
        """A text by its full key; empty where there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """A whole number by its key behind the architecture's name; of a list, the largest."""
        value = self.values.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            return max(value, default=default)
        return int(value) if isinstance(value, int) else default

    def total(self, key: str, layers: int, default: int = 0) -> int:
        """The sum over `layers` of a number that stands once for all, or once for each."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list):
            return sum(value[:layers])
        return layers * self.number(key, default)


def read_metadata(path: Path) -> Metadata:
    """Read the header of a GGUF file.

    Raises:
        ModelError: it cannot be read, is no GGUF, of an unknown version, damaged or beyond bounds.
    """
    try:
        with path.open("rb") as file:
            return _parse(_Cursor(path, file))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


class _Cursor:
    """A place in a header, and the bytes read so far."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._bytes = bytearray()
        self._at = 0

    def damaged(self, reason: str) -> ModelError:
        """What is wrong with the header, as an error to raise."""
        return ModelError(f"{self._path} is damaged ({reason}): download it again")

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self._advance(size)
        return bytes(self._bytes[start : start + size])

    def skip(self, size: int) -> None:
        """Pass `size` bytes."""
        self._advance(size)

    def scalar(self, kind: struct.Struct) -> int | float:
        """The next number."""
        value: int | float = kind.unpack_from(self._bytes, self._advance(kind.size))[0]
        return value

    def whole(self, kind: struct.Struct) -> int:
        """The next whole number."""
        return int(self.scalar(kind))

    def text(self) -> str:
        """The next string; what is no UTF-8 in it is replaced."""
        return self.take(self.whole(_U64)).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Pass `count` strings. Each takes eight bytes at least, so `LONGEST` bounds the time."""
        length = _U64.unpack_from
        for _ in range(count):
            try:
                self._at += _U64.size + length(self._bytes, self._at)[0]
            except (struct.error, OverflowError):  # beyond the bytes read so far
                self.skip(self.whole(_U64))
        self.skip(0)

    def _advance(self, size: int) -> int:
        """Move on by `size` bytes, which are there then; returns where they start."""
        start, end = self._at, self._at + size
        if end > LONGEST:
            raise self.damaged("its header is longer than any model's")
        while len(self._bytes) < end:
            more = self._file.read(max(CHUNK, end - len(self._bytes)))
            if not more:
                raise self.damaged("it ends within its header")
            self._bytes += more
        self._at = end
        return start


def _parse(cursor: _Cursor) -> Metadata:
    magic, version, tensors, entries = HEADER.unpack(cursor.take(HEADER.size))
    if magic != MAGIC:
        raise cursor.damaged("it is not a GGUF file")
    if version not in VERSIONS:
        raise cursor.damaged(f"it is GGUF version {version}")
    if tensors > MOST or entries > MOST:
        raise cursor.damaged(f"it claims {tensors} tensors and {entries} metadata entries")
    values = dict(_entries(cursor, entries))
    weights: dict[int, int] = {}
    for kind, count in _tensors(cursor, tensors):
        weights[kind] = weights.get(kind, 0) + count
    return Metadata(values, weights)


def _entries(cursor: _Cursor, count: int) -> Iterator[tuple[str, Value]]:
    for _ in range(count):
        key = cursor.text()
        value = _value(cursor, cursor.whole(_U32))
        if value is not None:
            yield key, value


def _value(cursor: _Cursor, kind: int) -> Value | None:
    """One value; None for a list that is not kept."""
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _list(cursor, cursor.whole(_U32), cursor.whole(_U64))
    if kind not in _SCALARS:
        raise cursor.damaged(f"it holds a value of the unknown type {kind}")
    return cursor.scalar(_SCALARS[kind])


def _list(cursor: _Cursor, kind: int, count: int) -> list[int] | None:
    if kind == _STRING:
        cursor.skip_texts(count)
        return None
    if kind not in _SCALARS:
        raise cursor.damaged(f"it holds a list of the unknown type {kind}")
    if kind in _WHOLE and count <= SHORT:
        return [cursor.whole(_SCALARS[kind]) for _ in range(count)]
    cursor.skip(count * _SCALARS[kind].size)
    return None


def _tensors(cursor: _Cursor, count: int) -> Iterator[tuple[int, int]]:
    """(type, number of weights) of each tensor."""
    for _ in range(count):
        cursor.skip(cursor.whole(_U64))
        dimensions = cursor.whole(_U32)
        if dimensions > DIMENSIONS:
            raise cursor.damaged(f"it holds a tensor of {dimensions} dimensions")
        weights = prod(cursor.whole(_U64) for _ in range(dimensions))
        yield cursor.whole(_U32), weights
        cursor.skip(_U64.size)
