"""Reads one file, whatever is in it: archives opened, a reader chosen, secrets removed.

Owns that nothing ends the reading of the rest: what a reader or the library behind it raises is the
reason why one file, or one member of an archive, is skipped, and nothing is skipped without a
reason. What ends the process is the concern of `reader_process`. Refuses to know formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from app.importing.archives import Members, archive_errors, archive_members
from app.importing.events import SkippedFile
from app.importing.find_files import read_failure
from app.importing.import_file import (
    MAX_TEXT_BYTES,
    FormatReader,
    ImportFile,
    Outcome,
    mebibytes,
)
from datastores.chats.history import storable
from datastores.errors import InputError
from datastores.library.documents import Document, Part
from datastores.redaction import redact_kinds

READER_VERSION = b"5"
"""Increased when readers or redaction change, so that unchanged files are read again."""

NOTHING_IN_IT = "nothing in it"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What identifies the content of the file that is read next, and how it is read.

    Attributes:
        value: SHA-256 of its bytes and of `READER_VERSION`; empty if it is too large to be read.
    """

    value: str


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """The file has the digest that was given: it is not read."""


@dataclass(frozen=True, slots=True)
class MemberStart:
    """A member of an archive is read next.

    Attributes:
        number: of the member, from 0.
        name, size: as in `ImportFile`.
    """

    number: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """The member was read; the next one is looked for."""


ReadEvent = Document | SkippedFile | FileDigest | UnchangedFile | MemberStart | MemberEnd


def read_file(
    file: ImportFile, readers: Sequence[FormatReader], known: str = "", first: int = 0
) -> Iterator[ReadEvent]:
    """Its digest, all documents in it, and why the rest is skipped; never raises for its content.

    Args:
        known: the digest with which it need not be read.
        first: the first member to read, if it is an archive whose reading goes on.
    """
    yield from _guarded(file.name, _digested(file, readers, known, first))


def read_documents(file: ImportFile, readers: Sequence[FormatReader]) -> Iterator[ReadEvent]:
    """The documents in a file that is not to be opened as an archive, and why the rest is skipped;
    never raises for its content."""
    yield from _guarded(file.name, _documents(file, readers))


def redacted(document: Document) -> tuple[Document, list[str]]:
    """The document as it is stored, without secrets, and the kind of each that was removed."""
    title, secrets = redact_kinds(_normalized(document.title))
    parts = []
    for part in document.parts:
        text, found = redact_kinds(_normalized(part.text))
        secrets += found
        parts.append(Part(part.kind, text, part.role))
    return Document(title, tuple(parts)), secrets


def _guarded(name: str, events: Iterator[ReadEvent]) -> Iterator[ReadEvent]:
    """`events`; what they raise is the reason why the rest of `name` is skipped."""
    try:
        yield from events
    except InputError as error:
        yield SkippedFile(name, str(error))
    except OSError as error:
        yield SkippedFile(name, read_failure(error))
    except MemoryError:
        yield SkippedFile(name, "needs too much memory to read")
    except RecursionError:
        yield SkippedFile(name, "nested too deep")
    # Whatever else a parser raises over bytes that nobody thought of costs this file alone.
    except Exception as error:  # noqa: BLE001
        yield SkippedFile(name, f"damaged ({type(error).__name__})")


def _digested(
    file: ImportFile, readers: Sequence[FormatReader], known: str, first: int
) -> Iterator[ReadEvent]:
    if not first:
        found = "" if _is_too_large(file, readers) else _digest(file)
        if found and found == known:
            yield UnchangedFile()
            return
        yield FileDigest(found)
    members = archive_members(file)
    if members is None:
        yield from _documents(file, readers)
    else:
        yield from _archived(file, members, readers, first)


def _digest(file: ImportFile) -> str:
    with file.open() as stream:
        content = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]
    content.update(READER_VERSION)
    return content.hexdigest()


def _archived(
    archive: ImportFile, members: Members, readers: Sequence[FormatReader], first: int
) -> Iterator[ReadEvent]:
    number = -1
    for number, member in enumerate(members):
        if number < first:
            continue
        if isinstance(member, SkippedFile):
            yield member
            continue
        yield MemberStart(number, member.name, member.size)
        yield from _guarded(member.name, _member_documents(member, readers))
        yield MemberEnd()
    if number < 0:
        yield SkippedFile(archive.name, NOTHING_IN_IT)


def _member_documents(member: ImportFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    with archive_errors():
        if archive_members(member) is None:
            yield from _documents(member, readers)
        else:
            yield SkippedFile(member.name, "an archive within an archive")


def _documents(file: ImportFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    reader = _reader_for(file, readers)
    if reader.limit is not None and file.size > reader.limit:
        raise InputError(f"larger than {mebibytes(reader.limit)}")
    empty = True
    for outcome in reader.read(file):
        empty = False
        if isinstance(outcome, SkippedFile):
            yield outcome
        elif not any(part.text.strip() for part in outcome.parts):
            yield SkippedFile(file.name, "empty")
        elif outcome.characters > MAX_TEXT_BYTES:
            yield SkippedFile(file.name, f"more than {mebibytes(MAX_TEXT_BYTES)} of text")
        else:
            yield outcome
    if empty:
        yield SkippedFile(file.name, NOTHING_IN_IT)


def _is_too_large(file: ImportFile, readers: Sequence[FormatReader]) -> bool:
    """Whether its size alone rules it out; reads no more than its head."""
    if archive_members(file) is not None:
        return False
    limit = _reader_for(file, readers).limit
    return limit is not None and file.size > limit


def _reader_for(file: ImportFile, readers: Sequence[FormatReader]) -> FormatReader:
    return next(reader for reader in readers if reader.claims(file))


def _normalized(text: str) -> str:
    """Text as the library keeps it: no zero bytes, no lone surrogates, plain newlines, and composed
    characters (NFC), which are the ones that models read and write."""
    return normalize("NFC", storable(text.replace("\0", "").replace("\r\n", "\n")))
