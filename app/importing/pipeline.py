"""An import: finds the files in what the person named, reads their documents, and stores them.

Owns the order of this work, and what happens to a document on the way: archives opened, a reader
chosen, secrets removed. One bad file never stops the rest. Files come in a fixed order and
documents are stored in groups, each in one transaction: after a kill at any time, importing again
ends in the same state as an import without one. Closing the generator cancels; what is stored
stays. Refuses to know formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from contextlib import closing
from pathlib import Path
from time import perf_counter

from app.importing.archives import archive_errors, archive_members
from app.importing.events import (
    Event,
    FindingFiles,
    ImportFinished,
    ImportProgress,
    ImportReport,
    SkippedFile,
)
from app.importing.find_files import FoundFile, find_files, read_failure
from app.importing.readers import make_readers
from app.importing.readers.text_extractor import TextExtractor
from app.importing.source_file import FormatReader, Outcome, ReadTracker, SourceFile, mebibytes
from datastores.chats.history import storable
from datastores.errors import InputError
from datastores.library.documents import Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from datastores.redaction import redact_kinds

MAX_GROUP_CHARACTERS = 2**22
MAX_GROUP_AGE_S = 0.5
"""A group is stored when it is this large or this old: so much is lost by a kill."""

READER_VERSION = b"3"
"""Increased when readers or redaction change, so that unchanged files are read again."""

FINDING_EVENT_FILES = 500
"""Files between two events while folders are searched."""

MAX_NAMED_REASONS = 3
"""Reasons named in the error of an import that stored nothing."""


class DocumentWriter:
    """Stores the documents of one file after another in groups, and counts them."""

    def __init__(self, library: Library, report: ImportReport) -> None:
        self._library = library
        self._report = report
        self._group: list[StoreDocument | FinishFile] = []
        self._characters = 0
        self._since = perf_counter()

    def add(self, source: str, file: str, position: int, document: Document) -> None:
        """Add a document, without its secrets."""
        clean, secrets = redacted(document)
        self._group.append(StoreDocument(source, file, position, clean))
        self._characters += clean.characters
        for kind in secrets:
            self._report.secrets.setdefault(kind, []).append(file)
        self._flush_if_due()

    def finish(self, source: str, file: str, digest: str, count: int) -> None:
        """Record that a file was read to its end, as in `FinishFile`."""
        self._group.append(FinishFile(source, file, digest, count))
        self._flush_if_due()

    def skip_unchanged(self, documents: int) -> None:
        """Count documents of a file that did not change."""
        self._report.unchanged += documents

    def flush(self) -> None:
        """Store the current group."""
        puts = sum(isinstance(entry, StoreDocument) for entry in self._group)
        stored = self._library.write(self._group)
        self._report.documents += len(stored)
        self._report.unchanged += puts - len(stored)
        self._report.characters += sum(entry.document.characters for entry in stored)
        self._group, self._characters, self._since = [], 0, perf_counter()

    def _flush_if_due(self) -> None:
        late = perf_counter() - self._since >= MAX_GROUP_AGE_S
        if late or self._characters >= MAX_GROUP_CHARACTERS:
            self.flush()


def import_paths(
    paths: Sequence[Path],
    library: Library,
    own: Iterable[Path] = (),
    only: Set[str] | None = None,
) -> Generator[Event]:
    """Import `paths`, files or folders; ends with `ImportFinished`.

    Args:
        own: specchat's directories, which are skipped.
        only: names of the files to import; None for all.

    Raises:
        StoreError: the library cannot be written.
        InputError: no path exists; or, after `ImportFinished`: nothing was imported, now or before.
    """
    if all(map(_is_missing, paths)):
        raise InputError(f"nothing imported: {paths[0]} does not exist")
    report = ImportReport()
    found: list[FoundFile] = []
    for item in _find(paths, frozenset(path.resolve() for path in own)):
        if isinstance(item, SkippedFile):
            yield _count(report, item)
            continue
        if only is not None and item.name not in only:
            continue
        found.append(item)
        if len(found) % FINDING_EVENT_FILES == 0:
            yield FindingFiles(len(found))
    with closing(TextExtractor()) as extractor:
        yield from _import_files(found, make_readers(extractor), library, report)
    yield ImportFinished(report)
    if not report.documents and not report.unchanged and only is None:
        raise InputError(f"nothing imported: {_reasons(report)}")


def _is_missing(path: Path) -> bool:
    try:
        path.expanduser().lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # there, and skipped with its reason
        return False
    return False


def _find(paths: Sequence[Path], own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    for path in paths:
        yield from find_files(path, own)


def _import_files(
    found: Sequence[FoundFile],
    readers: Sequence[FormatReader],
    library: Library,
    report: ImportReport,
) -> Iterator[Event]:
    writer = DocumentWriter(library, report)
    started, size = perf_counter(), 0
    total = sum(item.file.size for item in found)
    for number, item in enumerate(found):
        tracked = ReadTracker(item.file)
        for skipped in _import_file(item, tracked.file, readers, library, writer):
            if skipped is not None:
                yield _count(report, skipped)
            yield ImportProgress(
                name=item.name,
                files=number,
                total_files=len(found),
                bytes=size + tracked.position,
                total_bytes=total,
                documents=report.documents,
                characters=report.characters,
                seconds=perf_counter() - started,
            )
        size += item.file.size
    writer.flush()


def _import_file(
    item: FoundFile,
    file: SourceFile,
    readers: Sequence[FormatReader],
    library: Library,
    writer: DocumentWriter,
) -> Iterator[SkippedFile | None]:
    """Import one file unless it is unchanged; yields what is skipped, and None for progress."""
    yield None
    try:
        digest = "" if is_too_large(file, readers) else _digest(file)
    except OSError as error:
        yield SkippedFile(file.name, read_failure(error))
        return
    known = library.finished_documents(item.source, item.name, digest) if digest else 0
    if known:
        writer.skip_unchanged(known)
        return
    count = 0
    for outcome in read_documents(file, readers):
        if isinstance(outcome, SkippedFile):
            digest = ""
            yield outcome
        else:
            writer.add(item.source, item.name, count, outcome)
            count += 1
            yield None
    if count:
        writer.finish(item.source, item.name, digest, count)


def _digest(file: SourceFile) -> str:
    """The SHA-256 of the file and of `READER_VERSION`."""
    with file.open() as stream:
        content = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]
    content.update(READER_VERSION)
    return content.hexdigest()


def _count(report: ImportReport, skipped: SkippedFile) -> SkippedFile:
    report.skipped.setdefault(skipped.reason, []).append(skipped.name)
    return skipped


def _reasons(report: ImportReport) -> str:
    """The most common reasons, with their counts."""
    counts = sorted(report.counts.items(), key=lambda item: -item[1])
    named = [f"{reason} ({count})" for reason, count in counts[:MAX_NAMED_REASONS]]
    return ", ".join(named) or "there are no files in it"


def read_documents(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    """All documents in a file, and why the rest is skipped; never raises for its content.

    Yields something for every file: nothing is skipped silently.
    """
    empty = True
    for outcome in _extract(file, readers):
        empty = False
        yield outcome
    if empty:
        yield SkippedFile(file.name, "nothing in it")


def is_too_large(file: SourceFile, readers: Sequence[FormatReader]) -> bool:
    """Whether its size alone rules it out; reads no more than its head.

    Raises:
        OSError: the head cannot be read.
    """
    if archive_members(file) is not None:
        return False
    limit = _reader_for(file, readers).limit
    return limit is not None and file.size > limit


def redacted(document: Document) -> tuple[Document, list[str]]:
    """The document as it is stored, without secrets, and the kind of each that was removed."""
    title, secrets = redact_kinds(_normalized(document.title))
    parts = []
    for part in document.parts:
        text, found = redact_kinds(_normalized(part.text))
        secrets += found
        parts.append(Part(part.kind, text, part.role))
    return Document(title, tuple(parts)), secrets


def _extract(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    try:
        with archive_errors():
            members = archive_members(file)
            if members is None:
                yield from _documents(file, readers)
                return
            for member in members:
                yield from (
                    [member]
                    if isinstance(member, SkippedFile)
                    else _extract_member(member, readers)
                )
    except InputError as error:
        yield SkippedFile(file.name, str(error))
    except OSError as error:
        yield SkippedFile(file.name, read_failure(error))


def _extract_member(member: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    """A file within an archive; if it is damaged, only itself is lost."""
    try:
        with archive_errors():
            if archive_members(member) is None:
                yield from _documents(member, readers)
            else:
                yield SkippedFile(member.name, "an archive within an archive")
    except InputError as error:
        yield SkippedFile(member.name, str(error))


def _documents(file: SourceFile, readers: Sequence[FormatReader]) -> Iterator[Outcome]:
    reader = _reader_for(file, readers)
    if reader.limit is not None and file.size > reader.limit:
        raise InputError(f"larger than {mebibytes(reader.limit)}")
    for outcome in reader.read(file):
        if isinstance(outcome, Document) and not any(part.text.strip() for part in outcome.parts):
            yield SkippedFile(file.name, "empty")
        else:
            yield outcome


def _reader_for(file: SourceFile, readers: Sequence[FormatReader]) -> FormatReader:
    return next(reader for reader in readers if reader.claims(file))


def _normalized(text: str) -> str:
    """Text as the library keeps it: no zero bytes, no lone surrogates, plain newlines."""
    return storable(text.replace("\0", "").replace("\r\n", "\n"))
