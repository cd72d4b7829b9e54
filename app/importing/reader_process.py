"""The process that reads files: `python -m app.importing.reader_process`.

Files are hostile: their bytes reach parsers that crash, hang or fill the memory. So one process
reads one file after another, within limits of memory and of processor time, and may die of any.
Owns both sides: `ReaderProcess`, which keeps the process, and what the process does. One serves
many files, since starting it takes a fifth of a second; a file that kills it is skipped, of an
archive only the member, and the next file gets a new process. Refuses to know formats (`readers`)
and what a reader may raise (`reading`).
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
"""Memory (address space) of the process: a web page takes fifty times its size."""

READ_TIME_S, READ_TIME_S_PER_MIB = 4.0, 3.0
"""Processor time from one document to the next, and more for each mebibyte of the file: a web page
takes 1.6 s for one."""

MAX_DEATHS = 3
"""Members of one archive that kill the process before the rest is skipped."""

IMPORT, ATTACH = "import", "attach"
"""What files are read for: an import opens archives and exports of chats, and removes secrets."""


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document of a file.

    Attributes:
        document: for an import without its secrets.
        secrets: the kind of each that was removed.
    """

    document: Document
    secrets: tuple[str, ...] = ()


FileEvent = ReadDocument | SkippedFile | FileDigest | UnchangedFile


class ReaderProcess:
    """Reads files in a process of its own. For one thread at a time.

    Attributes:
        position: how far the present file is read, in bytes.
    """

    def __init__(self, purpose: str = IMPORT) -> None:
        self.position = 0
        self._purpose = purpose
        self._child: ChildProcess | None = None

    def close(self) -> None:
        """End the process; the next file starts another one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def read(self, file: FoundFile, known: str = "") -> Iterator[FileEvent]:
        """Its digest, its documents, and why the rest is skipped; never raises for its content.

        Args:
            known: the digest with which it need not be read.
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
        """What the process answers. Raises EOFError if it dies before the end."""
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
                # Nobody wants the other answers, and the next file must not get them.
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
"""What makes an event of the fields of a message, by the message's kind."""


def answer_requests(arguments: Sequence[str]) -> None:
    """In the process: read the files that are asked for; the argument is their purpose."""
    for (path, name, known, first), _ in receive_requests():
        _answer(Path(path), name, known, first, arguments[0])
        limit_time(0)


def _answer(path: Path, name: str, known: str, first: int, purpose: str) -> None:
    """Read one file, and send what happens: `[kind, position, fields]`."""
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
    """Of the file, in bytes; 0 if it is gone, which reading it then says."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _allow(size: int) -> None:
    """Give the next document its time, from a file of `size` bytes."""
    limit_time(READ_TIME_S + READ_TIME_S_PER_MIB * min(size, MAX_PDF_BYTES) / MIB)


if __name__ == "__main__":
    run_child(answer_requests, memory_bytes=READER_MEMORY_BYTES)
