"""From a file to documents that may be stored: archives opened, formats told, secrets taken out.

Bytes to text, whatever they were written in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.importing.archives import archive_errors, opener
from app.importing.events import SkippedFile
from app.importing.find_files import read_failure
from app.importing.source_file import FormatReader, Outcome, SourceFile, mebibytes
from datastores.chats.history import storable
from datastores.errors import InputError
from datastores.library.documents import Document, Part
from datastores.redaction import redact


def documents(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    """All documents in a file, and what is wrong with the rest; never raises for its content.

    Yields something of every file: nothing is passed over in silence.
    """
    silent = True
    for outcome in _outcomes(file, readers):
        silent = False
        yield outcome
    if silent:
        yield SkippedFile(file.name, "nothing in it")


def too_large(file: SourceFile, readers: Sequence[FormatReader]) -> bool:
    """Whether it would be refused for its size alone, without a look at more than its head.

    Raises:
        OSError: not even that can be had.
    """
    if opener(file) is not None:
        return False
    limit = _reader(file, readers).limit
    return limit is not None and file.size > limit


def prepared(document: Document) -> tuple[Document, int]:
    """The document as it may be stored, without secrets, and how many there were."""
    title, hits = redact(_tidy(document.title))
    parts = []
    for part in document.parts:
        text, found = redact(_tidy(part.text))
        hits += found
        parts.append(Part(part.kind, text, part.role))
    return Document(title, tuple(parts)), hits


def _outcomes(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    try:
        with archive_errors():
            members = opener(file)
            if members is None:
                yield from _read(file, readers)
                return
            for member in members(file):
                yield from [member] if isinstance(member, SkippedFile) else _member(member, readers)
    except InputError as error:
        yield SkippedFile(file.name, str(error))
    except OSError as error:
        yield SkippedFile(file.name, read_failure(error))


def _member(member: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    """A file within an archive: its damage costs only itself."""
    try:
        with archive_errors():
            if opener(member) is None:
                yield from _read(member, readers)
            else:
                yield SkippedFile(member.name, "an archive within an archive")
    except InputError as error:
        yield SkippedFile(member.name, str(error))


def _read(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    reader = _reader(file, readers)
    if reader.limit is not None and file.size > reader.limit:
        raise InputError(f"larger than {mebibytes(reader.limit)}")
    for outcome in reader.read(file):
        if isinstance(outcome, Document) and not any(part.text.strip() for part in outcome.parts):
            yield SkippedFile(file.name, "empty")
        else:
            yield outcome


def _reader(file: SourceFile, readers: Sequence[FormatReader]) -> FormatReader:
    return next(reader for reader in readers if reader.claims(file))


def _tidy(text: str) -> str:
    """Text as the library keeps it: no zero bytes, no lone surrogates, plain newlines."""
    return storable(text.replace("\0", "").replace("\r\n", "\n"))
