"""The process that reads files: `python -m app.importing.reader_process`.

Files are hostile: their bytes can make parsers crash, hang or fill the memory. So a process with
limits on memory and CPU time reads them. It serves many files, since starting it takes a fifth of a
second; a file that kills it is skipped (only the member, of an archive), and the next file gets a
new process. The module has both sides: `ReaderProcess` for the parent, and `answer_requests` for
the child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.find_files import FoundFile
from app.importing.import_file import MAX_PDF_BYTES, MIB, ImportFile, ReadTracker
from app.importing.readers import attachment_readers, make_readers
from app.importing.reading import (
    FileDigest,
    MemberEnd,
    MemberStart,
    UnchangedFile,
    read_documents,
    read_file,
    redacted,
)
from datastores.library.documents import Document, Part
from engines.child_process import (
    TIMED_OUT,
    ChildProcess,
    emit,
    limit_time,
    receive_requests,
    run_child,
)

MODULE = "app.importing.reader_process"

READER_MEMORY_BYTES = 3 * 2**28
"""Address space of the process; parsing a web page takes fifty times its size."""

READ_TIME_S, READ_TIME_S_PER_MIB = 4.0, 3.0
"""Limit on CPU time between two documents, and its increase per mebibyte of the file; a web page
takes 1.6 s per mebibyte."""

MAX_DEATHS = 3
"""Members of one archive that may kill the process before the rest is skipped."""

IMPORT, ATTACH = "import", "attach"
"""Purposes of reading: only an import opens archives and chat exports, and removes secrets."""


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document of a file; `secrets` has the kind of each secret that was removed from it."""

    document: Document
    secrets: tuple[str, ...] = ()


FileEvent = ReadDocument | SkippedFile | FileDigest | UnchangedFile


class ReaderProcess:
    """Reads files in a child process. For one thread at a time.

    Attributes:
        position: how far the current file has been read, in bytes.
    """

    def __init__(self, purpose: str = IMPORT) -> None:
        self.position = 0
        self._purpose = purpose
        self._child: ChildProcess | None = None

    def close(self) -> None:
        """End the process; the next `read` starts another one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def read(self, file: FoundFile, known: str = "") -> Iterator[FileEvent]:
        """Yields the digest of `file`, its documents, and why anything is skipped.

        Content never makes it raise.

        Args:
            known: the digest of an earlier import; a file that still has it is not read.
        """
        first, deaths = 0, 0
        while True:
            member: MemberStart | None = None
            try:
                for event in self._answers([str(file.path), file.name, known, first]):
                    if isinstance(event, MemberStart | MemberEnd):
                        member = event if isinstance(event, MemberStart) else None
                    else:
                        yield event
                return
            except EOFError:
                reason = self._cause_of_death()
            deaths += 1
            if member is None or deaths == MAX_DEATHS:
                yield SkippedFile(file.name, reason)
                return
            yield SkippedFile(member.name, reason)
            first = member.number + 1

    def _answers(self, request: Sequence[object]) -> Iterator[FileEvent | MemberStart | MemberEnd]:
        """The answers of the process. Raises EOFError if it dies before the last one."""
        if self._child is None:
            self._child = ChildProcess(MODULE, self._purpose, requests=True)
        self.position = 0
        self._child.send(request)
        for kind, position, fields in self._child:
            self.position = position
            if kind == _END:
                return
            try:
                yield _EVENTS[kind](*fields)
            except GeneratorExit:
                # The next request must not receive the remaining answers to this one.
                self.close()
                raise
        raise EOFError

    def _cause_of_death(self) -> str:
        assert self._child is not None
        code = self._child.code()
        self.close()
        return "takes too long to read" if code == TIMED_OUT else "crashes its parser"


_END = "end"


def _document(
    title: str, parts: Sequence[tuple[str, str, str]], secrets: Sequence[str]
) -> ReadDocument:
    return ReadDocument(Document(title, tuple(Part(*part) for part in parts)), tuple(secrets))


_EVENTS: Mapping[str, Callable[..., FileEvent | MemberStart | MemberEnd]] = {
    "document": _document,
    **{
        kind.__name__: kind
        for kind in (SkippedFile, FileDigest, UnchangedFile, MemberStart, MemberEnd)
    },
}
"""Kind of message → what builds the event from its fields."""


def answer_requests(arguments: Sequence[str]) -> None:
    """In the child: read the requested files; the only argument is their purpose."""
    for (path, name, known, first), _ in receive_requests():
        _answer(Path(path), name, known, first, arguments[0])
        limit_time(0)


def _answer(path: Path, name: str, known: str, first: int, purpose: str) -> None:
    """Read one file, and emit each event as `[kind, position, fields]`."""
    limit_time(READ_TIME_S)
    size = _size(path)
    tracked = ReadTracker(ImportFile(name, size, lambda: path.open("rb")))
    if purpose == ATTACH:
        events = read_documents(tracked.file, attachment_readers())
    else:
        events = read_file(tracked.file, make_readers(), known, first)
    _allow(size)
    for event in events:
        if isinstance(event, Document):
            document, secrets = redacted(event) if purpose == IMPORT else (event, [])
            parts = [(part.kind, part.text, part.role) for part in document.parts]
            emit(["document", tracked.position, [document.title, parts, secrets]])
        else:
            fields = [getattr(event, one.name) for one in dataclass_fields(event)]
            emit([type(event).__name__, tracked.position, fields])
        _allow(event.size if isinstance(event, MemberStart) else size)
    emit([_END, tracked.position, []])


def _size(path: Path) -> int:
    """Size of the file in bytes; 0 if it is gone, which reading it reports."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _allow(size: int) -> None:
    """Renew the time limit for the next document of a file of `size` bytes."""
    limit_time(READ_TIME_S + READ_TIME_S_PER_MIB * min(size, MAX_PDF_BYTES) / MIB)


if __name__ == "__main__":
    run_child(answer_requests, memory_bytes=READER_MEMORY_BYTES)
