"""The import itself: what the person named, file by file, into the library.

Owns the order of things: find, read, store. One bad file never stops the rest. Files come in a
fixed order and documents are stored in groups, each in one transaction: after a kill at any moment,
going on ends in the same state as if nothing had happened. Closing the generator cancels: what is
stored stays.

Documents into the library in small groups, each one transaction, and the report of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

from app.importing.events import (
    Event,
    FindingFiles,
    ImportFinished,
    ImportProgress,
    ImportReport,
    SkippedFile,
)
from app.importing.extract import documents, prepared, too_large
from app.importing.find_files import FoundFile, find_files, read_failure
from app.importing.readers import make_readers
from app.importing.readers.pdf_html import TextExtractor
from app.importing.source_file import FormatReader, ReadTracker, SourceFile
from datastores.errors import InputError
from datastores.library.documents import Document, FinishFile, StoreDocument
from datastores.library.library import Library

MAX_GROUP_CHARACTERS = 2**22
MAX_GROUP_AGE_S = 0.5
"""A group is stored when it is this large or this old: what a kill costs."""


class DocumentWriter:
    """Takes the documents of one file after the other."""

    def __init__(self, library: Library, report: ImportReport) -> None:
        self._library = library
        self._report = report
        self._group: list[StoreDocument | FinishFile] = []
        self._characters = 0
        self._since = perf_counter()

    def put(self, source: str, file: str, position: int, document: Document) -> None:
        """Take a document, without its secrets."""
        clean, hits = prepared(document)
        self._group.append(StoreDocument(source, file, position, clean))
        self._characters += clean.characters
        self._report.redacted += hits
        self._store_if_due()

    def finish(self, source: str, file: str, digest: str, count: int) -> None:
        """Note that a file was read to its end, as in `FinishFile`."""
        self._group.append(FinishFile(source, file, digest, count))
        self._store_if_due()

    def pass_over(self, known: int) -> None:
        """Count documents of a file that did not change."""
        self._report.unchanged += known

    def store(self) -> None:
        """Store what was taken."""
        puts = sum(isinstance(entry, StoreDocument) for entry in self._group)
        stored = self._library.write(self._group)
        self._report.documents += len(stored)
        self._report.unchanged += puts - len(stored)
        self._report.characters += sum(entry.document.characters for entry in stored)
        self._group, self._characters, self._since = [], 0, perf_counter()

    def _store_if_due(self) -> None:
        late = perf_counter() - self._since >= MAX_GROUP_AGE_S
        if late or self._characters >= MAX_GROUP_CHARACTERS:
            self.store()


READER_VERSION = b"2"
"""Raised when readers or redaction change, so that files are read again which did not change."""

FINDING_EVENT_FILES = 500
"""Files between two events while folders are walked."""

MAX_NAMED_REASONS = 3


def import_paths(
    paths: Sequence[Path], library: Library, own: Iterable[Path] = ()
) -> Generator[Event]:
    """Import `paths`, files or folders; ends with `ImportFinished`.

    `own` are specchat's directories, which are left out.

    Raises:
        StoreError: the library cannot be written.
        InputError: after `ImportFinished`: nothing was imported, and nothing was there from before.
    """
    report = ImportReport()
    found: list[FoundFile] = []
    for item in _walked(paths, frozenset(path.resolve() for path in own)):
        if isinstance(item, SkippedFile):
            yield _count(report, item)
            continue
        found.append(item)
        if len(found) % FINDING_EVENT_FILES == 0:
            yield FindingFiles(len(found))
    with closing(TextExtractor()) as extractor:
        yield from _read(found, make_readers(extractor), library, report)
    yield ImportFinished(report)
    if not report.documents and not report.unchanged:
        raise InputError(f"nothing was imported: {_reasons(report)}")


def _walked(paths: Sequence[Path], own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    for path in paths:
        yield from find_files(path, own)


def _read(
    found: Sequence[FoundFile],
    readers: Sequence[FormatReader],
    library: Library,
    report: ImportReport,
) -> Iterator[Event]:
    intake = DocumentWriter(library, report)
    started, size = perf_counter(), 0
    total = sum(item.file.size for item in found)
    for number, item in enumerate(found):
        tracked = ReadTracker(item.file)
        for flaw in _file(item, tracked.file, readers, library, intake):
            if flaw is not None:
                yield _count(report, flaw)
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
    intake.store()


def _file(
    item: FoundFile,
    file: SourceFile,
    readers: Sequence[FormatReader],
    library: Library,
    intake: DocumentWriter,
) -> Iterator[SkippedFile | None]:
    """Read one file, unless it was; yields flaws, and None where there is only progress to tell."""
    yield None
    try:
        digest = "" if too_large(file, readers) else _digest(file)
    except OSError as error:
        yield SkippedFile(file.name, read_failure(error))
        return
    known = library.finished_documents(item.source, item.name, digest) if digest else 0
    if known:
        intake.pass_over(known)
        return
    count = 0
    for outcome in documents(file, readers):
        if isinstance(outcome, SkippedFile):
            digest = ""
            yield outcome
        else:
            intake.put(item.source, item.name, count, outcome)
            count += 1
            yield None
    if count:
        intake.finish(item.source, item.name, digest, count)


def _digest(file: SourceFile) -> str:
    """Of the whole file, and of how it is read."""
    with file.open() as stream:
        content = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]
    content.update(READER_VERSION)
    return content.hexdigest()


def _count(report: ImportReport, skipped: SkippedFile) -> SkippedFile:
    report.skipped.setdefault(skipped.reason, []).append(skipped.name)
    return skipped


def _reasons(report: ImportReport) -> str:
    """The commonest reasons, with their numbers."""
    counts = sorted(report.counts.items(), key=lambda item: -item[1])
    named = [f"{reason} ({count})" for reason, count in counts[:MAX_NAMED_REASONS]]
    return ", ".join(named) or "there are no files in it"
