"""JSON of any size as a stream of records, with limits on each of them.

An export is an array of conversations, a single conversation, one a line, or an object that holds
the array. Owns recognising which. Refuses to know what a conversation looks like.
"""

from __future__ import annotations

import io
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import ijson
from ijson.common import JSONError

from app.importing.events import SkippedFile
from app.importing.source_file import MAX_ENTRY_BYTES, MAX_JSON_DEPTH, SourceFile, mebibytes
from datastores.errors import InputError

_TOO_LARGE = "an entry larger than {}"
_TOO_DEEP = f"JSON nested more than {MAX_JSON_DEPTH} deep"
_NOT_JSON = "damaged or truncated JSON"

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class JsonShape:
    """What the beginning of a JSON file shows.

    Attributes:
        array: whether it is an array of objects.
        keys: of the first object, as far as the beginning shows them; empty if there is none.
    """

    array: bool
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """One record and its number, from 1; `value` is any JSON value."""

    number: int
    value: Any


@lru_cache(maxsize=2)
def json_shape(head: bytes) -> JsonShape:
    """The shape of a file that begins with `head`, which may be no JSON."""
    head = head.removeprefix(BOM_UTF8)
    if first := _first_line(head):
        return JsonShape(False, frozenset(first))
    array, keys, depth = False, set(), 0
    try:
        for event, value in ijson.basic_parse(io.BytesIO(head)):
            opens, closes = event.startswith("start_"), event.startswith("end_")
            array = array or (event == "start_array" and depth == 0)
            if event == "map_key" and depth == 1 + array:
                keys.add(str(value))
            depth += opens - closes
            if (closes and depth == array and keys) or depth > MAX_JSON_DEPTH:
                break
    except JSONError:
        # The head ends in the middle, or is no JSON: what was parsed until there counts.
        pass
    return JsonShape(array, frozenset(keys))


def records(file: SourceFile, prefix: str | None = None) -> Iterator[JsonRecord | SkippedFile]:
    """The records of `file`, one at a time.

    `prefix` is their place, as ijson writes it (`chats.item`); by default the elements of an array,
    or each top-level object. Lines are parsed one by one, so that only a damaged one is skipped; in
    any other file nothing after the damage can be read.

    Raises:
        InputError: damaged, nested too deep, or a record too large.
    """
    if prefix is None and (file.suffix in JSON_LINES_SUFFIXES or _has_lines(file.head)):
        yield from _lines(file)
        return
    place = prefix if prefix is not None else "item" if json_shape(file.head).array else ""
    with file.open() as stream:
        for number, value in enumerate(items(stream, place), start=1):
            yield JsonRecord(number, value)


def items(stream: BinaryIO, prefix: str, limit: int = MAX_ENTRY_BYTES) -> Iterator[Any]:
    """The values at `prefix`, as ijson writes it, one after another.

    Integers may be of any size; numbers with a fraction are Decimals.

    Args:
        limit: the most bytes of one value.

    Raises:
        InputError: damaged, nested too deep, or a value too large.
    """
    meter = _EntryMeter(stream, limit)
    # Depth is limited before ijson.parse: its prefixes grow with the depth.
    events = ijson.basic_parse(meter, multiple_values=True)
    try:
        for item in ijson.items(ijson.parse(_shallow(events)), prefix):
            meter.used = 0
            yield item
    except JSONError as error:
        raise InputError(_NOT_JSON) from error


def require_shallow(stream: BinaryIO) -> None:
    """Raise InputError if JSON in `stream` is nested too deep; damaged JSON is accepted."""
    try:
        for _ in _shallow(ijson.basic_parse(stream)):
            pass
    except JSONError:
        return


class _EntryMeter:
    """A stream that refuses a record that is too large before it fills the memory."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._stream = stream
        if stream.read(len(BOM_UTF8)) != BOM_UTF8:
            stream.seek(0)

    def read(self, size: int) -> bytes:
        self.used += size
        if self.used > self._limit:
            raise InputError(_TOO_LARGE.format(mebibytes(self._limit)))
        return self._stream.read(size)


def _shallow(events: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    depth = 0
    for event in events:
        if event[0] in ("start_map", "start_array"):
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise InputError(_TOO_DEEP)
        elif event[0] in ("end_map", "end_array"):
            depth -= 1
        yield event


def _has_lines(head: bytes) -> bool:
    """Whether the first line is a complete object and another one follows it."""
    _, _, rest = head.partition(b"\n")
    return rest.lstrip().startswith(b"{") and bool(_first_line(head.removeprefix(BOM_UTF8)))


def _first_line(head: bytes) -> dict[str, Any]:
    """The object in the first line of several; empty if that is not one.

    Python's parser accepts the NaN that Python writes; ijson does not.
    """
    line, end, _ = head.partition(b"\n")
    if not line.startswith(b"{") or not end:
        return {}
    try:
        found = _parsed(line)
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def _lines(file: SourceFile) -> Iterator[JsonRecord | SkippedFile]:
    with file.open() as stream:
        for number, line in enumerate(_bounded_lines(stream), start=1):
            try:
                if line.strip():
                    yield JsonRecord(number, _parsed(line))
            except InputError as error:
                yield SkippedFile(f"{file.name}, line {number}", str(error))


def _parsed(line: bytes) -> Any:
    if len(line) >= MAX_ENTRY_BYTES:
        raise InputError(_TOO_LARGE.format(mebibytes(MAX_ENTRY_BYTES)))
    try:
        return json.loads(line)
    except RecursionError as error:
        raise InputError(_TOO_DEEP) from error
    except ValueError as error:
        raise InputError(_NOT_JSON) from error


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines, cut at the largest size that is parsed; the rest of a longer one is dropped."""
    while line := stream.readline(MAX_ENTRY_BYTES):
        rest = line
        while len(rest) == MAX_ENTRY_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_ENTRY_BYTES)
        yield line
