"""What readers are given and what they return, with the limits on both.

An `ImportFile` is one file, or one member of an archive, not yet read. A `FormatReader` turns it
into documents, and into `SkippedFile`s where a part of it cannot be used. Owns how large a file may
be that is read into memory.
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
"""Largest JSON file of an unknown format: a larger one is data, not something a person wrote."""

MAX_ENTRY_BYTES = 32 * MIB
"""Largest single conversation of an export; the export itself is streamed and may be any size."""

MAX_PDF_BYTES = 128 * MIB
"""Largest PDF: pictures are most of it."""

MAX_JSON_DEPTH = 200
"""Deepest nesting of JSON: exports use about 10."""

MAX_ARCHIVE_MEMBERS = 100_000
"""Most members of one archive."""

MAX_ARCHIVE_RATIO = 20
"""How many times its size an archive may unpack to; text compresses to a tenth, logs to less."""

MIN_UNPACKED_LIMIT_BYTES = 40 * MIB
"""What any archive may unpack to, however small it is."""

NO_TEXT = "no text in it"
"""Why a file is skipped that shows none, such as a scan."""

HEAD_BYTES = 2**16
"""The start of a file, by which its format is recognised."""


def mebibytes(size: int) -> str:
    """A limit in words."""
    return f"{size // MIB} MiB"


@dataclass(frozen=True)
class ImportFile:
    """Bytes with a name.

    Attributes:
        name: path within its import, in a form that can be stored; hostile until sanitised.
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
        """The first `HEAD_BYTES`."""
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    def read(self, limit: int) -> bytes:
        """All of it.

        Raises:
            InputError: it has more than `limit` bytes, whatever its `size` says.
        """
        with self.open() as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise InputError(f"larger than {mebibytes(limit)}")
        return content


class ReadTracker:
    """Tracks how far a file has been read.

    Attributes:
        file: the same file, to be given to readers.
    """

    def __init__(self, file: ImportFile) -> None:
        self.file = replace(file, open=self._opened)
        self._open = file.open
        self._stream: BinaryIO | None = None

    @property
    def position(self) -> int:
        """Of the stream that was opened last, in bytes; 0 when it is closed."""
        return 0 if self._stream is None or self._stream.closed else self._stream.tell()

    def _opened(self) -> BinaryIO:
        self._stream = self._open()
        return self._stream


Outcome = Document | SkippedFile


@dataclass(frozen=True, slots=True)
class FormatReader:
    """Reads one format.

    Attributes:
        format: its name, for people.
        claims: whether a file has this format, by its name and its head alone.
        read: the documents in it. Raises InputError, whose message is a reason as in
            `SkippedFile`, where nothing (more) of it can be used.
        limit: the largest file it reads, in bytes; None if it streams.
    """

    format: str
    claims: Callable[[ImportFile], bool]
    read: Callable[[ImportFile], Iterator[Outcome]]
    limit: int | None = None
