"""Restores chats into a history: from the JSON of `app.conversation.export`, or from a damaged
history that was set aside, as far as it can be read.

The file may have been edited or made by others, so everything in it is validated; an invalid chat
is skipped and the others are restored. A chat that still exists is left alone, so restoring twice
is harmless.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import psutil

from app.chat_settings import (
    DOCS,
    AnswerEnd,
    answer_end,
    parse_docs,
    require_docs_mode,
    with_overrides,
)
from app.conversation.export import VERSION
from app.importing.json_stream import items
from datastores.chats.history import History, contains_chat, restore_chat
from datastores.chats.records import (
    ASSISTANT,
    INTERRUPTED,
    SYSTEM,
    USER,
    Attached,
    Chat,
    StoredMessage,
)
from datastores.chats.salvage import salvage
from datastores.errors import InputError
from datastores.storage.salvage import is_database
from engines.sampler import Sampling

MAX_CHAT_BYTES = 2**26
"""Reading 200 MB of one chat takes 40 s; an attachment has at most 4 MB."""
MAX_CHAT_MEMORY_BYTES = 3 * 2**28
"""Values of JSON take up to thirty times its bytes in memory."""
MAX_SHOWN_VERSION = 20
"""Longest unknown version that a message shows."""
MAX_TOKEN = 2**32 - 1
MAX_TIME = 2**37
"""Seconds since 1970: a distant time that calendars still support."""

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class ExportedChat:
    """A chat with all its messages, parents before children, with the ids of the file."""

    chat: Chat
    messages: list[StoredMessage]


@dataclass(frozen=True, slots=True)
class InvalidChat:
    """A chat that cannot be restored, and why."""

    reason: str


def read_export(path: Path) -> Iterator[ExportedChat | InvalidChat]:
    """The chats of a file, one at a time.

    Raises:
        InputError: it cannot be read, or is not an export of specchat from some point on.
    """
    try:
        _require_file(path)
        if is_database(path):
            yield from (ExportedChat(*found) for found in salvage(path))
            return
        _require_version(path)
        for record in _records(path, "chats.item"):
            yield _exported(record)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except MemoryError as error:
        raise InputError(f"{path}: a chat needs too much memory to read") from error


@contextmanager
def _limited_memory(size: int) -> Iterator[None]:
    """Let this process allocate at most `size` more bytes before MemoryError; no limit on
    Windows."""
    if sys.platform == "win32":
        yield
        return
    import resource

    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = psutil.Process().memory_info().vms + size
    limits = (limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)  # a new pair might not fit into memory


def _require_file(path: Path) -> None:
    """Raise InputError for a pipe or a device, which would block and cannot be read twice."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError("it is not a file: save the export to one first")


def _require_version(path: Path) -> None:
    for version in _records(path, "specchat"):
        if version == VERSION:
            return
        shown = str(version)[:MAX_SHOWN_VERSION]
        raise InputError(f"it has version {shown}, and this specchat reads {VERSION}")
    raise InputError("it is not an export of specchat (`specchat import` reads those of others)")


def _records(path: Path, prefix: str) -> Iterator[Any]:
    """The values at `prefix`; numbers are integers, or floats."""
    with path.open("rb") as stream:
        yield from map(_with_floats, items(stream, prefix, MAX_CHAT_BYTES))


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def _exported(record: Any) -> ExportedChat | InvalidChat:
    try:
        chat = _chat(record)
        messages = [_message(item) for item in _field(record, "messages", list)]
        _require_tree(chat, messages)
    except InputError as error:
        return InvalidChat(str(error))
    return ExportedChat(chat, messages)


def _require_tree(chat: Chat, messages: Sequence[StoredMessage]) -> None:
    known: set[int | None] = {None}
    for message in messages:
        if message.parent not in known or message.id in known:
            raise InputError(f"message {message.id} repeats an id, or its parent is missing")
        known.add(message.id)
    if chat.active not in known:
        raise InputError(f"its open message {chat.active} is missing")


def _chat(record: Any) -> Chat:
    sampling = _field(record, "sampling", dict)
    with_overrides(Sampling(), sampling)
    answer_end(sampling, AnswerEnd(1))
    return Chat(
        id=0,
        title=_field(record, "title", str),
        pinned=_field(record, "pinned", bool),
        private=_field(record, "private", bool),
        system=_field(record, "system", str),
        sampling=sampling,
        active=_id(record, "active"),
        created=_time(record, "created"),
        updated=_time(record, "updated"),
        docs=_docs(record),
    )


def _docs(record: Any) -> str:
    """The use of imported texts; exports of earlier versions have none."""
    docs = _field({DOCS: "", **record}, DOCS, str)
    if not docs:
        return docs
    require_docs_mode(docs.partition(" ")[0], DOCS)
    return str(parse_docs(docs))


def _message(record: Any) -> StoredMessage:
    role, tokens = _field(record, "role", str), _field(record, "tokens", list)
    if role not in (SYSTEM, USER, ASSISTANT):
        raise InputError(f"unknown role {role!r}")
    content = _field(record, "content", str)
    if not all(type(token) is int and 0 <= token <= MAX_TOKEN for token in tokens):
        raise InputError("tokens must be whole numbers below 2^32")
    return StoredMessage(
        id=_field(record, "id", int),
        chat=0,
        parent=_id(record, "parent"),
        role=role,
        content=content,
        tokens=tuple(tokens),
        model=_field(record, "model", str),
        tokenizer=_field(record, "tokenizer", str),
        finish=_field(record, "finish", str) or INTERRUPTED,
        statistics=_field(record, "statistics", dict),
        created=_time(record, "created"),
        attachments=_attachments(record, len(content)),
    )


def _attachments(record: Any, length: int) -> tuple[Attached, ...]:
    """The attached files, in order and within the message's `length` characters."""
    files, end = [], 0
    for item in _field(record, "attachments", list) if "attachments" in record else ():
        numbers = {key: _field(item, key, int) for key in ("size", "files", "start", "end")}
        if min(numbers.values()) < 0 or not end <= numbers["start"] <= numbers["end"] <= length:
            raise InputError("its attachments are not in its text")
        files.append(Attached(_field(item, "name", str), **numbers))
        end = files[-1].end
    return tuple(files)


def _id(record: Mapping[str, Any], name: str) -> int | None:
    return None if record.get(name, 0) is None else _field(record, name, int)


def _time(record: Mapping[str, Any], name: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or not 0 <= value < MAX_TIME:
        raise InputError(f"{name} must be a time in seconds since 1970")
    return float(value)


def _field(record: Any, name: str, kind: type[Kind]) -> Kind:
    """A required field of that type."""
    value = record.get(name) if isinstance(record, dict) else None
    if type(value) is not kind:
        raise InputError(f"{name} is missing or not of type {kind.__name__}")
    return value


@dataclass(slots=True)
class RestoreReport:
    """The outcome for the chats of a file.

    Attributes:
        present: number of chats that already existed.
        flaws: a sentence for each of the others.
    """

    restored: int = 0
    present: int = 0
    flaws: list[str] = field(default_factory=list)


def restore(path: Path, history: History) -> RestoreReport:
    """Restore the chats of the file.

    Raises:
        InputError: it cannot be read, is not an export, or holds no chats; damage after the first
            chats is a flaw.
        StoreError: the history cannot be written.
    """
    report = RestoreReport()
    try:
        with _limited_memory(MAX_CHAT_MEMORY_BYTES):
            for number, found in enumerate(read_export(path), start=1):
                _put_back(number, found, history, report)
    except InputError as error:
        if report == RestoreReport():
            raise
        report.flaws.append(f"the rest: {error}")
    if report == RestoreReport():
        raise InputError(f"{path} holds no chats")
    return report


def _put_back(
    number: int, found: ExportedChat | InvalidChat, history: History, report: RestoreReport
) -> None:
    """Restore the `number`th chat of the file, unless it exists."""
    if isinstance(found, InvalidChat):
        report.flaws.append(f"chat {number}: {found.reason}")
    elif contains_chat(history, found.chat, found.messages):
        report.present += 1
    else:
        restore_chat(history, found.chat, found.messages)
        report.restored += 1
