"""What an import yields while it runs. Names come from files: hostile until sanitised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FindingFiles:
    """Folders are being walked: `files` found so far."""

    files: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """Something was not imported, or not all of it."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far reading has come.

    Attributes:
        name: what is being read.
        files, total_files: files done, and all there are.
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
        """At this rate; None while nothing can be said."""
        return (self.total_bytes - self.bytes) / self.rate if self.rate else None


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        documents: stored, new or changed.
        unchanged: found as they were stored before.
        characters: of the documents stored.
        redacted: secrets that were taken out of them.
        skipped: names by reason, in the order in which they were met.
    """

    documents: int = 0
    unchanged: int = 0
    characters: int = 0
    redacted: int = 0
    skipped: dict[str, list[str]] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many were skipped, by reason."""
        return {reason: len(names) for reason, names in self.skipped.items()}


@dataclass(frozen=True, slots=True)
class ImportFinished:
    """The import came to its end."""

    report: ImportReport


Event = FindingFiles | SkippedFile | ImportProgress | ImportFinished
