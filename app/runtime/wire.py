"""What `specchat ask` and the process that has the model open send each other: JSON, one message a
line.

A command sends an `AskRequest`. The process replies with `Declined`, or with `Accepted`, the events
of the answer, and `Done` or `Failed`. Any further line from the command stops the answer. Either
side may be another version or hostile: a message is used only if every field has its type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from app.config import Options
from app.conversation import events
from app.conversation.attachments import Attachment
from app.conversation.citations import SearchOutcome, Source
from app.conversation.statistics import Piece, Statistics, stored_statistics
from app.locations import Locations
from datastores.errors import SpecchatError

MAX_REQUEST_BYTES = 2**23
"""Longer requests are answered by the command itself; no model's context holds so much text."""
MAX_MESSAGE_BYTES = 2**24
"""Longest message to a command, which holds the passages of an answer and their texts."""
STOP = b"stop\n"
"""Stops the answer."""

_REVISION = 1
"""Increases when a message changes its meaning, but not its fields."""


class MessageError(SpecchatError):
    """A line that is not a message of this version."""


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question of `specchat ask`, and how to answer it.

    Attributes:
        continued: whether it follows the last chat, instead of beginning a new one.
        system, preset: system prompt, and name of the preset, of the new chat; may be empty.
        for_shell: system prompt of the new chat if it has no other, for a command as the answer;
            the built-in model needs none.
        unsaved: whether nothing is stored.
        docs: how imported texts are used, a `DocsSetting` as it is stored; empty leaves it to the
            chat and the settings.
        stop: texts that end the answer, in addition to those of the chat.
    """

    options: Options
    locations: Locations
    text: str
    attachments: tuple[Attachment, ...] = ()
    continued: bool = False
    system: str = ""
    preset: str = ""
    for_shell: str = ""
    unsaved: bool = False
    docs: str = ""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request is answered, after other answers if it is `waiting` for them."""

    waiting: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing follows."""


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no answer, or only a part of it: the `text` of an error of class `kind`."""

    kind: str
    text: str

    def error(self) -> SpecchatError:
        """The error, as it was raised in the other process."""
        kinds = {kind.__name__: kind for kind in SpecchatError.__subclasses__()}
        return kinds.get(self.kind, SpecchatError)(self.text)


WireMessage = AskRequest | Accepted | Done | Failed | events.Event

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(AskRequest, Accepted, Done, Failed),
        *(events.Opened, events.Declined, events.Warned, events.Resumed, events.Retrieved),
        *(events.Speculated, events.Interpolated, events.Checking, events.Dropped),
        *(events.Prefilling, events.WroteText, events.Cited, events.Remarked, events.Finished),
    )
}
"""Every message by its name. `Wrote` is sent as the `WroteText` that it is: what it says of the
step is for this process alone."""

PROTOCOL = crc32(
    repr(
        (
            _REVISION,
            [
                (kind.__name__, [(one.name, one.type) for one in fields(kind)])
                for kind in (*_KINDS.values(), Options, Locations, Attachment, Piece, Statistics)
            ],
        )
    ).encode()
)
"""Identifies the messages: both sides must have the same."""


def encode(message: WireMessage) -> bytes:
    """`message` as a line."""
    kind = events.WroteText if isinstance(message, events.Wrote) else type(message)
    line = json.dumps(
        [PROTOCOL, kind.__name__, {one.name: getattr(message, one.name) for one in fields(kind)}],
        default=_plain,
        ensure_ascii=False,
    )
    # File names may hold bytes that are not UTF-8, which Python keeps as surrogates.
    return line.encode("utf-8", "surrogatepass") + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Statistics):
        return value.figures()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    raise TypeError(f"{type(value).__name__} is not sent to other processes")


def decode(line: bytes) -> WireMessage:
    """The message in `line`.

    Raises:
        MessageError: it is none of this version.
    """
    if not line.endswith(b"\n"):
        raise MessageError("the other process closed the connection")
    try:
        protocol, name, values = json.loads(line.decode("utf-8", "surrogatepass"))
        if protocol != PROTOCOL:
            raise MessageError("the other process is another version of specchat")
        message: WireMessage = _record(_KINDS[name], values)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise MessageError("the other process sent no message of this version") from error
    return message


def _record(kind: type, values: Any) -> Any:
    """An instance of the dataclass `kind`, all of whose fields must be given."""
    known = fields(kind)
    if not isinstance(values, dict) or values.keys() != {one.name for one in known}:
        raise ValueError(f"not the fields of {kind.__name__}")
    return kind(**{one.name: _READERS[str(one.type)](values[one.name]) for one in known})


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"not {kind.__name__}")
        return value

    return read


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _several(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: tuple(map(read, _exactly(list)(values)))


def _path(value: Any) -> Path:
    return Path(_exactly(str)(value))


def _number(value: Any) -> float:
    return float(value) if type(value) is int else float(_exactly(float)(value))


def _statistics(value: Any) -> Statistics:
    return stored_statistics(_exactly(dict)(value))


def _passage(value: Any) -> Any:
    # Imported here: retrieval is large, and meanwhile the other process reads the passages.
    from app.indexing.passage_index import FoundPassage

    return _record(FoundPassage, value)


def _chunk(value: Any) -> Any:
    from datastores.passages.chunks import Chunk

    return _record(Chunk, value)


def _retrieval(value: Any) -> Any:
    from engines.ralm.events import RalmStatistics

    return _record(RalmStatistics, value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "bool": _exactly(bool),
    "float": _number,
    "Path": _path,
    "bytes": lambda value: bytes.fromhex(_exactly(str)(value)),
    "str | None": _optional(_exactly(str)),
    "int | None": _optional(_exactly(int)),
    "float | None": _optional(_number),
    "Path | None": _optional(_path),
    "tuple[str, ...]": _several(_exactly(str)),
    "Options": partial(_record, Options),
    "Locations": partial(_record, Locations),
    "tuple[Attachment, ...]": _several(partial(_record, Attachment)),
    "tuple[Piece, ...]": _several(partial(_record, Piece)),
    "tuple[Source, ...]": _several(partial(_record, Source)),
    "Statistics": _statistics,
    "Chunk": _chunk,
    "tuple[FoundPassage, ...]": _several(_passage),
    "SearchOutcome": partial(_record, SearchOutcome),
    "SearchOutcome | None": _optional(partial(_record, SearchOutcome)),
    "RalmStatistics": _retrieval,
    "RalmStatistics | None": _optional(_retrieval),
}
"""How the value of a field is read, by the field's type as it is written."""
