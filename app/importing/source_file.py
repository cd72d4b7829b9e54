"""What readers are given and what they give back.

A `SourceFile` is one file, or one member of an archive, not yet read. A reader turns it into
documents, and into flaws where a part of it cannot be used while the rest can.

How large things may be that are read into memory, and how long reading may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import BinaryIO

from app.importing.events import SkippedFile
from datastores.errors import InputError
from datastores.library.documents import Document

MIB = 2**20

MAX_TEXT_BYTES = 32 * MIB
"""Largest file that is read as a whole: a long book has 5 MiB."""

MAX_JSON_BYTES = MIB
"""Largest JSON file of unknown meaning: beyond it, it is data, not something a person wrote."""

MAX_ENTRY_BYTES = 32 * MIB
"""Largest single conversation of an export; the export itself is streamed and may be any size."""

MAX_PDF_BYTES = 128 * MIB
"""Largest PDF: most of one is pictures."""

MAX_JSON_DEPTH = 200
"""Deepest nesting of JSON: exports use about 10."""

MAX_ARCHIVE_MEMBERS = 100_000
"""Most members of one archive that are looked at."""

MAX_ARCHIVE_RATIO = 200
"""How many times its size an archive may unpack to; text packs to a tenth or so."""

MIN_UNPACKED_LIMIT_BYTES = 64 * MIB
"""What any archive may unpack to, however small it is."""

EXTRACT_TIMEOUT_S = 30.0
"""Longest a PDF or a web page may take to read."""

EXTRACT_MEMORY_BYTES = 2**31
"""Memory (address space) of the process that reads PDFs and web pages."""


def mebibytes(size: int) -> str:
    """A limit in words."""
    return f"{size // MIB} MiB"


HEAD_BYTES = 2**16


@dataclass(frozen=True)
class SourceFile:
    """Bytes with a name.

    Attributes:
        name: path within its source, in a form that can be stored and shown; hostile.
        size: in bytes, as the file system or the archive claims.
        open: a fresh binary stream of it. Raises OSError.
    """

    name: str
    size: int
    open: Callable[[], BinaryIO]

    @property
    def stem(self) -> str:
        """The last part of the name, without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def filename(self) -> str:
        """The last part of the name, in small letters."""
        return PurePosixPath(self.name).name.lower()

    @property
    def suffix(self) -> str:
        """With its dot, in small letters; empty where there is none."""
        return PurePosixPath(self.filename).suffix

    @cached_property
    def head(self) -> bytes:
        """The first bytes, by which formats are told apart."""
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    def read(self, limit: int) -> bytes:
        """All of it.

        Raises:
            InputError: it has more than `limit` bytes, whatever it claims.
        """
        with self.open() as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise InputError(f"larger than {mebibytes(limit)}")
        return content


class ReadTracker:
    """A file that tells how far it has been read.

    Attributes:
        file: the same, to be given to readers.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = replace(file, open=self._opened)
        self._open = file.open
        self._stream: BinaryIO | None = None

    @property
    def position(self) -> int:
        """Where the stream that was opened last stands, in bytes; 0 when it is closed."""
        return 0 if self._stream is None or self._stream.closed else self._stream.tell()

    def _opened(self) -> BinaryIO:
        self._stream = self._open()
        return self._stream


Outcome = Document | SkippedFile


@dataclass(frozen=True, slots=True)
class FormatReader:
    """One format.

    Attributes:
        format: its name, for people.
        claims: whether it is the one to read this, from the name and the head alone.
        read: the documents in it. Raises InputError, whose message is a reason as in
            `SkippedFile`, where nothing (more) of it can be used.
        limit: largest file it reads, in bytes; None where it streams.
    """

    format: str
    claims: Callable[[SourceFile], bool]
    read: Callable[[SourceFile], Iterator[Outcome]]
    limit: int | None = None
