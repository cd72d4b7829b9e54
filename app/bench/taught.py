"""What `bench distill` teaches and measures: the student, the draft head, or the head beside it.

Owns how each reads an answer and drafts in a tree. Refuses to know streams and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from app.models.gguf_files import model_parts
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.gate import student_calls, tree_calls
from engines.distillation.head import OutputMatrix
from engines.distillation.head_pupil import HeadPupil
from engines.distillation.pupil import Pupil
from engines.distillation.reader import HeadReader, Reader, StudentReader
from engines.distillation.student_pupil import StudentPupil
from engines.drafter_replay import ReplayCounts
from engines.drafters.head import HeadDrafter, read_head
from engines.drafters.student import Student
from engines.target import Target, Vocabulary

LoadStudent = Callable[[Path], Student]


class Taught(Protocol):
    """A `version` is a file; None: the original student, or no head."""

    @property
    def pupil(self) -> Pupil:
        """How it is taught."""
        ...

    def readers(self, version: Path | None) -> Sequence[Reader]:
        """What reads answers as it: one, or none where nothing drafts."""
        ...

    def calls(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[ReplayCounts]:
        """The calls of each answer with the whole tree."""
        ...


class TaughtStudent:
    """The student in a file, loaded as it drafts."""

    def __init__(self, original: Path, load: LoadStudent) -> None:
        self.pupil = StudentPupil(original, load)
        self._original = original
        self._load = load

    def readers(self, version: Path | None) -> Sequence[Reader]:
        return [StudentReader(version or self._original)]

    def calls(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[ReplayCounts]:
        return student_calls(self._load(version or self._original), records)


class TaughtHead:
    """The head of the target in a GGUF file; in one tree with a student, if there is one."""

    def __init__(
        self, path: Path, target: Target, vocabulary: Vocabulary, student: Student | None = None
    ) -> None:
        self._matrix = OutputMatrix(*model_parts(path))
        self._stops = vocabulary.stops
        self._student = student
        self.pupil = HeadPupil(self._matrix, target.fingerprint, vocabulary.stops)

    def readers(self, version: Path | None) -> Sequence[Reader]:
        return [HeadReader(version, self._matrix)] if version else []

    def calls(
        self, version: Path | None, records: Sequence[ReplayRecord]
    ) -> Iterator[ReplayCounts]:
        heads = []
        if version:
            head = read_head(version, self.pupil.origin, self._matrix.width, self._matrix.size)
            heads.append(HeadDrafter(head, self._stops))
        if self._student is None:
            return tree_calls(heads, records)
        return student_calls(self._student, records, heads)
