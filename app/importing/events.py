"""The events of a running import. Names come from files: hostile until sanitised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FindingFiles:
    """Folders are being searched; `files` have been found so far."""

    files: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file, or a part of one, that was skipped or imported with possible errors.

    Attributes:
        name: as in `ImportFile.name`, followed by a position within the file where that helps.
        reason: one of few phrases, so that reasons can be counted.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How much is read of which file, how much is stored, and the time since reading began."""

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
        """Bytes read per second; 0 at the very start."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rate so far; None while it is 0."""
        return (self.total_bytes - self.bytes) / self.rate if self.rate else None


@dataclass(slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        documents: number of new or changed documents, all of which are stored.
        unchanged: number of documents that were stored before.
        characters: length of the new or changed documents.
        secrets: kind of secret → file names, one for each secret removed.
        skipped: reason → names, in the order of the import.
    """

    documents: int = 0
    unchanged: int = 0
    characters: int = 0
    secrets: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=dict)

    @property
    def redacted(self) -> int:
        """Number of secrets removed."""
        return sum(len(names) for names in self.secrets.values())

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of skipped files by reason."""
        return {reason: len(names) for reason, names in self.skipped.items()}


@dataclass(frozen=True, slots=True)
class ImportFinished:
    """The import is complete."""

    report: ImportReport


Event = FindingFiles | SkippedFile | ImportProgress | ImportFinished
