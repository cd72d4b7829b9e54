"""What an import yields while it runs. Names come from files: hostile until sanitised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FindingFiles:
    """Folders are being searched; `files` were found so far."""

    files: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file, or a part of one, that was not imported, or not exactly.

    Attributes:
        name: as in `ImportFile.name`, with a place within it where that helps.
        reason: half a sentence; reasons are few, so that they can be counted.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far the import is.

    Attributes:
        name: what is being read.
        files, total_files: files read, and in all.
        bytes, total_bytes: their sizes.
        documents, characters: stored so far.
        seconds: since reading began.
    """

    name: str
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    documents: int
    characters: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second; 0 at the very start."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None while it is unknown."""
        return (self.total_bytes - self.bytes) / self.rate if self.rate else None


@dataclass(slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        documents: stored, new or changed.
        unchanged: documents that were stored before.
        characters: of the documents stored.
        secrets: of what was removed from them: file names by kind, one for each secret.
        skipped: names by reason, in the order of the import.
    """

    documents: int = 0
    unchanged: int = 0
    characters: int = 0
    secrets: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=dict)

    @property
    def redacted(self) -> int:
        """How many secrets were removed."""
        return sum(len(names) for names in self.secrets.values())

    @property
    def counts(self) -> Mapping[str, int]:
        """How many were skipped, by reason."""
        return {reason: len(names) for reason, names in self.skipped.items()}


@dataclass(frozen=True, slots=True)
class ImportFinished:
    """The import is complete."""

    report: ImportReport


Event = FindingFiles | SkippedFile | ImportProgress | ImportFinished
