"""The input and output of readers, with the limits on both.

An `ImportFile` is one file, or one member of an archive, not yet read. A `FormatReader` turns it
into documents, and into a `SkippedFile` for each part that cannot be used.
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
"""Largest file that is read as a whole; a long book has 5 MiB."""

MAX_JSON_BYTES = MIB
"""Largest JSON file of an unknown format; a larger one is data, not something a person wrote."""

MAX_ENTRY_BYTES = 32 * MIB
"""Largest single conversation of an export; the export itself is streamed and may be any size."""

MAX_PDF_BYTES = 128 * MIB
"""Larger than for texts, since most of a PDF is pictures."""

MAX_JSON_DEPTH = 200
"""Exports nest about 10 deep."""

MAX_ARCHIVE_MEMBERS = 100_000

MAX_ARCHIVE_RATIO = 20
"""Most times its own size that an archive may unpack to; text compresses to a tenth, logs more."""

MIN_UNPACKED_LIMIT_BYTES = 40 * MIB
"""Any archive may unpack to this size."""

NO_TEXT = "no text in it"
"""Reason for skipping a file without text, such as a scan."""

HEAD_BYTES = 2**16
"""Size of the beginning by which a file's format is recognised."""


def mebibytes(size: int) -> str:
    """A limit in words."""
    return f"{size // MIB} MiB"


@dataclass(frozen=True)
class ImportFile:
    """A named file, not yet read.

    Attributes:
        name: path within its import, as from `storable_name`; hostile until sanitised.
        size: in bytes, as the file system or the archive claims.
        open: returns a fresh binary stream of it. Raises OSError.
    """

    name: str
    size: int
    open: Callable[[], BinaryIO]

    @property
    def stem(self) -> str:
        """The last component of the name, without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def filename(self) -> str:
        """The last component of the name, in lower case."""
        return PurePosixPath(self.name).name.lower()

    @property
    def suffix(self) -> str:
        """The suffix with its dot, in lower case; empty if there is none."""
        return PurePosixPath(self.filename).suffix

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD_BYTES` bytes."""
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    def read(self, limit: int) -> bytes:
        """The whole content.

        Raises:
            InputError: it has more than `limit` bytes, whatever `size` claims.
        """
        with self.open() as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise InputError(f"larger than {mebibytes(limit)}")
        return content


class ReadTracker:
    """Tracks how far `file`, a copy of the given one, has been read."""

    def __init__(self, file: ImportFile) -> None:
        self.file = replace(file, open=self._opened)
        self._open = file.open
        self._stream: BinaryIO | None = None

    @property
    def position(self) -> int:
        """Position of the stream opened last, in bytes; 0 once it is closed."""
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
        claims: tells whether a file has this format, by its name and its head alone.
        read: yields the documents in it. Raises InputError, whose message is a reason as in
            `SkippedFile`, where nothing (more) of it can be used.
        limit: size of the largest file it reads, in bytes; None if it streams.
    """

    format: str
    claims: Callable[[ImportFile], bool]
    read: Callable[[ImportFile], Iterator[Outcome]]
    limit: int | None = None
