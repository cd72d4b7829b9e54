"""Reads one file, whatever is in it: opens archives, chooses a reader, removes secrets.

Whatever a reader or its library raises becomes the reason for skipping that file, or that member
of an archive; nothing is skipped without a reason. `reader_process` handles what kills the process.
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
    """Identifies the content of the file that is read next.

    Attributes:
        value: SHA-256 of its bytes and of `READER_VERSION`; empty if it is too large to read.
    """

    value: str


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """The file still has the known digest and is not read."""


@dataclass(frozen=True, slots=True)
class MemberStart:
    """Member `number` (from 0) of an archive is read next."""

    number: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """The member has been read; the archive is searched for the next one."""


ReadEvent = Document | SkippedFile | FileDigest | UnchangedFile | MemberStart | MemberEnd


def read_file(
    file: ImportFile, readers: Sequence[FormatReader], known: str = "", first: int = 0
) -> Iterator[ReadEvent]:
    """Yields the digest of `file`, its documents, and why anything is skipped.

    Content never makes it raise.

    Args:
        known: the digest of an earlier import; a file that still has it is not read.
        first: number of the archive member at which to resume.
    """
    yield from _guarded(file.name, _digested(file, readers, known, first))


def read_documents(file: ImportFile, readers: Sequence[FormatReader]) -> Iterator[ReadEvent]:
    """Like `read_file`, without a digest and without opening archives."""
    yield from _guarded(file.name, _documents(file, readers))


def redacted(document: Document) -> tuple[Document, list[str]]:
    """The document as it is stored, without secrets, and the kind of each secret removed."""
    title, secrets = redact_kinds(_normalized(document.title))
    parts = []
    for part in document.parts:
        text, found = redact_kinds(_normalized(part.text))
        secrets += found
        parts.append(Part(part.kind, text, part.role))
    return Document(title, tuple(parts)), secrets


def _guarded(name: str, events: Iterator[ReadEvent]) -> Iterator[ReadEvent]:
    """`events`; an exception becomes the reason for skipping the rest of `name`."""
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
    # Parsers may raise anything over malformed bytes; it must cost this file alone.
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
    """Whether its size alone rules it out; reads only its head."""
    if archive_members(file) is not None:
        return False
    limit = _reader_for(file, readers).limit
    return limit is not None and file.size > limit


def _reader_for(file: ImportFile, readers: Sequence[FormatReader]) -> FormatReader:
    return next(reader for reader in readers if reader.claims(file))


def _normalized(text: str) -> str:
    """Text as the library keeps it: no zero bytes, no lone surrogates, `\\n` line ends, and
    composed characters (NFC), as models read and write them."""
    return normalize("NFC", storable(text.replace("\0", "").replace("\r\n", "\n")))
