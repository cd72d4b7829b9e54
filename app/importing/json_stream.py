"""JSON of any size as a stream of records of limited size.

An export is an array of conversations, one conversation, one on each line, or an object with the
array somewhere inside. Callers decide what a conversation looks like.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, BinaryIO

import ijson
from ijson.common import JSONError

from app.importing.encodings import AS_WESTERN
from app.importing.events import SkippedFile
from app.importing.import_file import (
    MAX_ENTRY_BYTES,
    MAX_JSON_DEPTH,
    ImportFile,
    mebibytes,
)
from app.importing.json_cleaning import CleanedJson, in_utf8, json_encoding
from datastores.errors import InputError

MAX_DROPPED_BYTES = 16 * MAX_ENTRY_BYTES
"""Largest entry that is read to its end to skip it; a larger one ends the reading of the file."""

_EXCEEDS = "exceeds"
"""An additional event: the current entry is larger than `MAX_ENTRY_BYTES`."""

DAMAGED = "damaged or truncated JSON"
_TOO_LARGE = "an entry larger than {}"
_TOO_DEEP = f"JSON nested more than {MAX_JSON_DEPTH} deep"

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")

Event = tuple[str, Any]
"""An event of ijson (`start_map`, `map_key`, `string` …) and its value."""


@dataclass(frozen=True, slots=True)
class JsonShape:
    """What the beginning of a JSON file shows.

    Attributes:
        array: whether it is an array of objects.
        keys: those of the first object within the beginning; empty if there is none.
    """

    array: bool
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """One record.

    Attributes:
        number: counted from 1.
        rest: the value is an object from which other records have been taken and yielded.
        size: approximate size in bytes.
        dropped: it was too large to keep, and `value` is empty.
    """

    number: int
    value: Any
    rest: bool = False
    size: int = 0
    dropped: bool = False


def mapping(value: object) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else ()


def string(value: object) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def looks_like_json(file: ImportFile) -> bool:
    """Whether it begins like an object or an array."""
    return utf8_head(file).lstrip()[:1] in (b"{", b"[")


def utf8_head(file: ImportFile) -> bytes:
    """The beginning of `file` in UTF-8, without a byte order mark."""
    encoding = json_encoding(file.head[:4])
    if encoding == "utf-8":
        return file.head
    return file.head.decode(encoding, "ignore").encode("utf-8", "replace")


@lru_cache(maxsize=2)
def json_shape(head: bytes) -> JsonShape:
    """The shape of a file that begins with `head`, from `utf8_head`; it need not be JSON."""
    if first := _first_line(head):
        return JsonShape(False, frozenset(first))
    array, keys, depth = False, set(), 0
    try:
        for event, value in ijson.basic_parse(CleanedJson(io.BytesIO(head))):
            opens, closes = event.startswith("start_"), event.startswith("end_")
            array = array or (event == "start_array" and depth == 0)
            if event == "map_key" and depth == 1 + array:
                keys.add(str(value))
            depth += opens - closes
            if (closes and depth == array and keys) or depth > MAX_JSON_DEPTH:
                break
    except (JSONError, InputError):
        # The head is cut off or is not JSON: keep what was parsed so far.
        pass
    return JsonShape(array, frozenset(keys))


def records(
    file: ImportFile,
    is_part: Callable[[Mapping[str, Any]], bool],
    is_whole: Callable[[Mapping[str, Any]], bool],
) -> Iterator[JsonRecord | SkippedFile]:
    """The records of `file`, one at a time.

    They are the elements of an array, or the values of lines. Of an object, they are the elements
    of its arrays that contain a part of a record (`is_part`) and are complete (`is_whole`), and
    finally the object without those.
    A damaged line costs that line alone. In any other file nothing after the damage can be read;
    the record that contains it is yielded as far as it was read. An array element that is too large
    is skipped.

    Raises:
        InputError: nested too deep, or an object or a number too large.
    """
    if _has_lines(file):
        yield from _lines(file)
        return
    builder = _RecordBuilder(is_part, is_whole)
    try:
        with file.open() as stream:
            meter = _EntryMeter(CleanedJson(stream), MAX_DROPPED_BYTES)
            events = _shallow(ijson.basic_parse(meter, multiple_values=True))
            for record in builder.build(_metered(events, meter)):
                if record.dropped:
                    reason = _TOO_LARGE.format(mebibytes(MAX_ENTRY_BYTES))
                    yield SkippedFile(f"{file.name}, entry {record.number}", reason)
                else:
                    yield replace(record, size=meter.used)
                meter.used = 0
    except (JSONError, InputError) as error:
        yield from builder.unfinished()
        if isinstance(error, InputError):
            raise
        yield SkippedFile(file.name, DAMAGED)


def items(stream: BinaryIO, prefix: str, limit: int = MAX_ENTRY_BYTES) -> Iterator[Any]:
    """The values at `prefix`, in ijson's notation; numbers with a fraction are Decimals.

    Args:
        limit: size of the largest value, in bytes.

    Raises:
        InputError: damaged, nested too deep, or a value or a number too large.
    """
    meter = _EntryMeter(CleanedJson(stream), limit)
    # Depth is limited before ijson.parse: its prefixes grow with the depth.
    events = ijson.basic_parse(meter, multiple_values=True)
    try:
        for item in ijson.items(ijson.parse(_shallow(events)), prefix):
            meter.used = 0
            yield item
    except JSONError as error:
        raise InputError(DAMAGED) from error


def require_shallow(stream: BinaryIO) -> None:
    """Raise InputError if JSON in `stream` is nested too deep; damaged JSON is accepted."""
    try:
        for _ in _shallow(ijson.basic_parse(CleanedJson(stream))):
            pass
    except JSONError:
        return


class _RecordBuilder:
    """Builds values from ijson's events, and yields records as soon as they are complete."""

    def __init__(
        self,
        is_part: Callable[[Mapping[str, Any]], bool],
        is_whole: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        self._is_part = is_part
        self._is_whole = is_whole
        self._open: list[Any] = []
        self._keys: list[str] = []
        self._holding: list[bool] = []
        self._number = 0
        self._given = False
        self._dropping = False

    def build(self, events: Iterable[Event]) -> Iterator[JsonRecord]:
        """The records that `events` complete."""
        for event, value in events:
            if event == "map_key":
                self._keys[-1] = value
            elif event in ("start_map", "start_array"):
                self._open.append({} if event == "start_map" else [])
                self._keys.append("")
                self._holding.append(False)
            elif event in ("end_map", "end_array"):
                holding, closed = self._holding[-1], self._close()
                part = event == "end_map" and self._is_part(closed)
                if self._is_record(event, closed, holding and not part):
                    yield self._record(closed)
                elif self._open:
                    self._attach(closed)
                    self._holding[-1] |= holding or part
            elif event == _EXCEEDS:
                self._drop()
            elif len(self._open) > 1 or (self._open and isinstance(self._open[0], dict)):
                self._attach(value)
            else:
                yield self._record(value)

    def unfinished(self) -> Iterator[JsonRecord]:
        """The incomplete record, if any, as far as it was read."""
        while len(self._open) > 1:
            self._attach(self._close())
        while self._open:
            value = self._close()
            yield from map(self._record, value if isinstance(value, list) else [value])

    def _record(self, value: Any) -> JsonRecord:
        self._number += 1
        rest = self._given and not self._open
        self._given = bool(self._open) and isinstance(self._open[0], dict)
        dropped, self._dropping = self._dropping, False
        return JsonRecord(self._number, value, rest, dropped=dropped)

    def _drop(self) -> None:
        """Discard the current element."""
        if not self._open or isinstance(self._open[0], dict):
            raise InputError(_TOO_LARGE.format(mebibytes(MAX_ENTRY_BYTES)))
        self._dropping = True
        for value in self._open[1:]:
            value.clear()

    def _close(self) -> Any:
        self._keys.pop()
        self._holding.pop()
        return self._open.pop()

    def _is_record(self, event: str, value: Any, holds_part: bool) -> bool:
        if not self._open:
            return event != "end_array"
        if not isinstance(self._open[-1], list):
            return False
        if len(self._open) == 1:
            return True
        return event == "end_map" and holds_part and self._is_whole(value)

    def _attach(self, value: Any) -> None:
        if self._dropping:
            return
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            parent[self._keys[-1]] = value


class _EntryMeter:
    """A stream that raises InputError for a record that is too large before it fills the memory."""

    def __init__(self, stream: CleanedJson, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._stream = stream

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self.used += len(content)
        if self.used > self._limit:
            raise InputError(_TOO_LARGE.format(mebibytes(self._limit)))
        return content


def _metered(events: Iterable[Event], meter: _EntryMeter) -> Iterator[Event]:
    """`events`, with an `_EXCEEDS` where an entry grows too large."""
    exceeds = False
    for event in events:
        if exceeds != (meter.used > MAX_ENTRY_BYTES):
            exceeds = not exceeds
            if exceeds:
                yield _EXCEEDS, None
        yield event


def _shallow(events: Iterable[Event]) -> Iterator[Event]:
    depth = 0
    for event in events:
        if event[0] in ("start_map", "start_array"):
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise InputError(_TOO_DEEP)
        elif event[0] in ("end_map", "end_array"):
            depth -= 1
        yield event


def _has_lines(file: ImportFile) -> bool:
    """Whether each line is a value: the first is a complete object, and another one follows.

    The suffix of JSON lines suffices, unless a longer array begins on the first line.
    """
    head = utf8_head(file)
    first, _, rest = head.partition(b"\n")
    if file.suffix in JSON_LINES_SUFFIXES:
        return not head.startswith(b"[") or first.rstrip().endswith(b"]")
    return rest.lstrip().startswith(b"{") and bool(_first_line(head))


def _first_line(head: bytes) -> dict[str, Any]:
    """The object on the first of several lines; empty if it is not one."""
    line, end, _ = head.partition(b"\n")
    if not line.startswith(b"{") or not end:
        return {}
    try:
        found = _parsed(line)
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def _lines(file: ImportFile) -> Iterator[JsonRecord | SkippedFile]:
    with file.open() as stream:
        for number, line in enumerate(_bounded_lines(in_utf8(stream)), start=1):
            try:
                if line.strip():
                    yield JsonRecord(number, _parsed(line), size=len(line))
            except InputError as error:
                yield SkippedFile(f"{file.name}, line {number}", str(error))


def _parsed(line: bytes) -> Any:
    """The value of a line; Python's parser accepts NaN and lone surrogates."""
    if len(line) >= MAX_ENTRY_BYTES:
        raise InputError(_TOO_LARGE.format(mebibytes(MAX_ENTRY_BYTES)))
    try:
        return json.loads(line.decode("utf-8", AS_WESTERN))
    except RecursionError as error:
        raise InputError(_TOO_DEEP) from error
    except ValueError as error:
        raise InputError(DAMAGED) from error


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines, truncated at `MAX_ENTRY_BYTES`."""
    while line := stream.readline(MAX_ENTRY_BYTES):
        rest = line
        while len(rest) == MAX_ENTRY_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_ENTRY_BYTES)
        yield line
