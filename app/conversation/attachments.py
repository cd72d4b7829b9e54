"""Files attached to a question: read as text, put before it, and located in the stored message.

The stored text of a message is what the model reads: each file under its name, then the question.
`Attached` records the positions of the files in that text, so that they can be folded and the
question edited without them. The formats are those of the import (text, PDF, web pages, notebooks);
a folder is attached with all files that an import would find.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from datastores.chats.records import Attached, StoredMessage
from datastores.errors import InputError

if TYPE_CHECKING:
    from app.importing.find_files import FoundFile
    from app.importing.reader_process import ReaderProcess

MAX_ATTACHMENT_BYTES = 4_000_000
"""Most text in one attachment; no model's context holds more."""
MAX_FILES = 200
"""Most files of one folder."""
STANDARD_INPUT = "standard input"

_GAP = "\n\n"
"""Separates a file's name, its text and what follows."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The text of a file or a folder.

    Attributes:
        name: for people and for the model; that of a folder ends with a slash.
        size: in bytes on disk.
        text: for the model; of a folder, each file under its name.
        files: number of files.
    """

    name: str
    size: int
    text: str
    files: int = 1


def compose(question: str, attachments: Sequence[Attachment]) -> tuple[str, tuple[Attached, ...]]:
    """A message's text, the files before the question, and the position of each of them."""
    content, places = "", []
    for one in attachments:
        content += f"{'Folder' if one.files > 1 else 'File'} {one.name}:{_GAP}"
        places.append(
            Attached(one.name, one.size, one.files, len(content), len(content) + len(one.text))
        )
        content += one.text + _GAP
    return content + question, tuple(places)


def question_of(message: StoredMessage) -> str:
    """The text of `message` without its attachments."""
    if not message.attachments:
        return message.content
    return message.content[message.attachments[-1].end + len(_GAP) :]


def attachments_of(message: StoredMessage) -> tuple[Attachment, ...]:
    """The attachments of `message`, as they were read for it."""
    return tuple(
        Attachment(one.name, one.size, message.content[one.start : one.end], one.files)
        for one in message.attachments
    )


def read_attachment(path: Path) -> Attachment:
    """Read a file or a folder. A PDF takes seconds.

    Raises:
        InputError: it is missing, binary, too large, or nothing of it can be read.
    """
    # Imported here: a question without files needs no readers.
    from app.importing.events import SkippedFile
    from app.importing.find_files import expanded, find_files
    from app.importing.reader_process import ATTACH, ReaderProcess

    path = expanded(path)
    texts: list[tuple[str, str]] = []
    size, reasons = 0, []
    with closing(ReaderProcess(ATTACH)) as reader:
        for found in find_files(path, frozenset()):
            if isinstance(found, SkippedFile):
                reasons.append(found.reason)
                continue
            if len(texts) == MAX_FILES:
                raise InputError(f"cannot attach {path}: more than {MAX_FILES} files")
            try:
                texts.append((found.name, _text(reader, found)))
            except InputError as error:
                reasons.append(str(error))
                continue
            size += found.size
            _require_size(path, sum(len(text) for _, text in texts))
    if not texts:
        raise InputError(f"cannot attach {path}: {reasons[0] if reasons else 'it is empty'}")
    return _attachment(path, size, texts)


def _text(reader: ReaderProcess, found: FoundFile) -> str:
    """The text of a file. The message of an InputError is the reason."""
    from app.importing.events import SkippedFile
    from app.importing.reader_process import ReadDocument

    texts, reasons = [], []
    for event in reader.read(found):
        if isinstance(event, ReadDocument):
            texts += [part.text.strip("\n") for part in event.document.parts]
        elif isinstance(event, SkippedFile):
            reasons.append(event.reason)
    # Imported here: a question without files does not open the history.
    from datastores.chats.history import storable

    text = _GAP.join(texts)
    if not text.strip():
        raise InputError(reasons[0] if reasons else "no text in it")
    return storable(text.replace("\0", ""))


def read_stream(stream: BinaryIO, name: str) -> Attachment:
    """The text in `stream`, in any encoding that an import reads.

    Raises:
        InputError: it cannot be read, is too large, or is not text.
    """
    # Imported here: a question without files needs no readers.
    from app.importing.encodings import decode

    try:
        content = stream.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    _require_size(name, len(content))
    try:
        text, _ = decode(content)
    except InputError as error:
        raise InputError(f"{name} is not text: {error}") from error
    return Attachment(name, len(content), text.rstrip())


def _attachment(path: Path, size: int, texts: Sequence[tuple[str, str]]) -> Attachment:
    from datastores.chats.history import storable

    near = not path.is_absolute() and ".." not in path.parts and path.name
    name = storable(path.as_posix() if near else os.path.basename(os.path.abspath(path)) or "/")
    if not path.is_dir():
        return Attachment(name, size, texts[0][1])
    inside = _GAP.join(f"File {name}/{file}:{_GAP}{text}" for file, text in texts)
    return Attachment(f"{name}/", size, inside, len(texts))


def _require_size(name: object, size: int) -> None:
    if size > MAX_ATTACHMENT_BYTES:
        limit = MAX_ATTACHMENT_BYTES // 1_000_000
        raise InputError(f"{name} has more than {limit} MB of text: attach a part of it")
