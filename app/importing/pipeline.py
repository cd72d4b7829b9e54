"""An import: finds the files under the given paths, reads their documents, and stores them.

A bad file never stops the rest: files are read in a process that may crash (`reader_process`).
Files come in a fixed order, and documents are stored in groups, each in one transaction: after a
kill at any time, importing again ends in the same state as an uninterrupted import. Closing the
generator cancels; what is stored stays.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from contextlib import closing
from itertools import chain
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
from app.importing.find_files import FoundFile, expanded, find_files
from app.importing.reader_process import ReadDocument, ReaderProcess
from app.importing.reading import FileDigest, UnchangedFile
from datastores.errors import InputError
from datastores.library.documents import FinishFile, StoreDocument
from datastores.library.library import Library

MAX_GROUP_CHARACTERS = 2**22
MAX_GROUP_AGE_S = 0.5
"""A group is stored when it is this large or this old, which bounds what a kill loses."""

FINDING_EVENT_FILES = 500
"""Files between two `FindingFiles` events."""

MAX_NAMED_REASONS = 3
"""Reasons named in the error of an import that stored nothing."""


class DocumentWriter:
    """Stores documents in groups, file by file, and counts them."""

    def __init__(self, library: Library, report: ImportReport) -> None:
        self._library = library
        self._report = report
        self._group: list[StoreDocument | FinishFile] = []
        self._characters = 0
        self._since = perf_counter()

    def add(self, import_path: str, file: str, position: int, read: ReadDocument) -> None:
        """Add a document to the current group."""
        self._group.append(StoreDocument(import_path, file, position, read.document))
        self._characters += read.document.characters
        for kind in read.secrets:
            self._report.secrets.setdefault(kind, []).append(file)
        self._flush_if_due()

    def finish(self, import_path: str, file: str, digest: str, count: int) -> None:
        """Record that a file was read to its end; see `FinishFile`."""
        self._group.append(FinishFile(import_path, file, digest, count))
        self._flush_if_due()

    def skip_unchanged(self, documents: int) -> None:
        """Count the documents of an unchanged file."""
        self._report.unchanged += documents

    def flush(self) -> None:
        """Store the current group."""
        written = sum(isinstance(entry, StoreDocument) for entry in self._group)
        stored = self._library.write(self._group)
        self._report.documents += len(stored)
        self._report.unchanged += written - len(stored)
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
        InputError: no path exists; or, after `ImportFinished`, nothing was or had been imported.
    """
    if all(map(_is_missing, paths)):
        raise InputError(f"nothing imported: no such file or folder: {paths[0]}")
    report = ImportReport()
    found: list[FoundFile] = []
    resolved = frozenset(path.resolve() for path in own)
    for item in chain.from_iterable(find_files(path, resolved) for path in paths):
        if isinstance(item, SkippedFile):
            yield _count(report, item)
            continue
        if only is not None and item.name not in only:
            continue
        found.append(item)
        if len(found) % FINDING_EVENT_FILES == 0:
            yield FindingFiles(len(found))
    with closing(ReaderProcess()) as reader:
        yield from _import_files(found, reader, library, report)
    yield ImportFinished(report)
    if not report.documents and not report.unchanged and only is None:
        raise InputError(f"nothing imported: {_reasons(report)}")


def _is_missing(path: Path) -> bool:
    try:
        expanded(path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it exists, and is skipped with its reason
        return False
    return False


def _import_files(
    found: Sequence[FoundFile], reader: ReaderProcess, library: Library, report: ImportReport
) -> Iterator[Event]:
    writer = DocumentWriter(library, report)
    started, size = perf_counter(), 0
    total = sum(item.size for item in found)
    for number, item in enumerate(found):
        for skipped in _import_file(item, reader, library, writer):
            if skipped is not None:
                yield _count(report, skipped)
            yield ImportProgress(
                name=item.name,
                files=number,
                total_files=len(found),
                bytes=size + min(reader.position, item.size),
                total_bytes=total,
                documents=report.documents,
                characters=report.characters,
                seconds=perf_counter() - started,
            )
        size += item.size
    writer.flush()


def _import_file(
    item: FoundFile, reader: ReaderProcess, library: Library, writer: DocumentWriter
) -> Iterator[SkippedFile | None]:
    """Import one file unless it is unchanged; yields None when it starts and for each document."""
    known, documents = library.finished_file(item.import_path, item.name)
    digest, count = "", 0
    yield None
    for event in reader.read(item, known):
        match event:
            case UnchangedFile():
                writer.skip_unchanged(documents)
            case FileDigest():
                digest = event.value
            case SkippedFile():
                digest = ""
                yield event
            case ReadDocument():
                writer.add(item.import_path, item.name, count, event)
                count += 1
                yield None
    if count:
        writer.finish(item.import_path, item.name, digest, count)


def _count(report: ImportReport, skipped: SkippedFile) -> SkippedFile:
    report.skipped.setdefault(skipped.reason, []).append(skipped.name)
    return skipped


def _reasons(report: ImportReport) -> str:
    counts = sorted(report.counts.items(), key=lambda item: -item[1])
    named = [f"{reason} ({count})" for reason, count in counts[:MAX_NAMED_REASONS]]
    return ", ".join(named) or "there are no files in it"
