"""The trained versions of a draft model or head on disk, and which of them drafts.

    folder/0007/draft-model.gguf    the weights; of a head, head.safetensors
    folder/0007/version.json        a `Version`
    folder/current.json             the number of the version that drafts, 0 for the original draft
                                    model, and the last number given
    folder/attempt.json             the `Attempt` made last

A version is published whole, by one rename, and the latest three are kept. Owns the folder. Refuses
to know how versions are made; imports no torch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from datastores.errors import ModelError, StoreError
from datastores.storage.files import write_atomic
from engines.fingerprint import fingerprint

KEPT = 3
"""Versions kept: to step back to, when a later one turns out worse."""
DRAFT_MODEL_FILE, HEAD_FILE, VERSION_FILE = "draft-model.gguf", "head.safetensors", "version.json"
FORMER_DRAFT_MODEL_FILE = "student.gguf"
"""What earlier versions of specchat called the weights."""
CURRENT_FILE, ATTEMPT_FILE = "current.json", "attempt.json"
CHECKPOINT_SUFFIX = ".safetensors"
_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True)
class Version:
    """One trained version.

    Attributes:
        number: from 1 on, never used twice.
        created: seconds since the epoch.
        fingerprint: of its file. origin: of the draft model that the first version was trained
            from.
        parent: number of the version that it was trained from; 0 for the original draft model.
        buffer: identity of the replay buffer. last_record, last_removal: its state then, for
            `ReplayBuffer.removed_since`.
        figures: what the gate measured, by name.
    """

    number: int
    created: float
    fingerprint: str
    origin: str
    parent: int
    buffer: str
    last_record: int
    last_removal: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class VersionIdentity:
    """Which version drafts: its number, and the fingerprint of its file; equal for no two."""

    number: int
    fingerprint: str


ORIGINAL = VersionIdentity(0, "")
"""Where no version drafts."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The round that ended last.

    Attributes:
        ended: seconds since the epoch.
        buffer, last_record: what it saw, as in `Version`.
        version: what it published; 0 for nothing.
        reason: why nothing; empty otherwise.
        fruitless: trainings in a row that published nothing, up to this one.
    """

    ended: float
    buffer: str
    last_record: int
    version: int
    reason: str
    fruitless: int = 0


class Versions:
    """The versions of one draft model or head for one target."""

    def __init__(self, folder: Path, weights_file: str = DRAFT_MODEL_FILE) -> None:
        """Args:
        folder: created by the first version.
        weights_file: name of each version's weights.
        """
        self.folder = folder
        self._weights_file = weights_file
        self._option = " --head" if weights_file == HEAD_FILE else ""

    def all(self) -> list[Version]:
        """Every whole version, oldest first; one that is damaged is left out."""
        return [version for number in self._numbers() for version in self._read(number)]

    @property
    def damaged(self) -> list[int]:
        """Numbers of the versions whose description is damaged or missing, ascending."""
        return [number for number in self._numbers() if not list(self._read(number))]

    @property
    def current(self) -> int:
        """Number of the version that drafts; 0 for the original draft model.

        The one that was chosen, or the last one before it that is there; the latest if nobody can
        read which was chosen.

        Raises:
            StoreError: the folder cannot be read.
        """
        chosen = self._noted("version")
        return max((number for number in self._numbers() if number <= chosen), default=0)

    @property
    def current_identity(self) -> VersionIdentity:
        """The version that drafts; `ORIGINAL` for the original draft model.

        Raises:
            StoreError: the folder cannot be read.
        """
        number = self.current
        return VersionIdentity(number, "".join(one.fingerprint for one in self._read(number)))

    def current_version(self) -> Version | None:
        """The version that drafts; None for the original draft model.

        Raises:
            StoreError: it is damaged, or its file is another one now.
        """
        number = self.current
        if not number:
            return None
        versions = list(self._read(number))
        if not versions or not self._is_intact(versions[0]):
            raise StoreError(
                f"version {number} in {self.folder} is damaged: `specchat draft"
                f" rollback{self._option}` returns to an earlier one"
            )
        return versions[0]

    def file(self, number: int) -> Path:
        """The weights of a version."""
        folder = self.folder / f"{number:04d}"
        former = folder / FORMER_DRAFT_MODEL_FILE
        return former if former.exists() else folder / self._weights_file

    def checkpoint(self, buffer: str, last_removal: int) -> Path:
        """The half-trained weights of a round on the replay buffer of this identity and state.

        After a removal no round goes on from them, and `drop_tainted` deletes them.
        """
        return self.folder / f"round-{buffer}-{last_removal}{CHECKPOINT_SUFFIX}"

    def partial(self) -> Path:
        """A new folder for the next version's files; `publish` or `discard` ends it.

        Raises:
            StoreError: it cannot be created.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in self.folder.glob(f"{_PARTIAL}*"):  # of a process that was killed
                shutil.rmtree(old)
            path = self.folder / f"{_PARTIAL}{os.getpid()}"
            path.mkdir(mode=0o700)
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error
        return path

    def drop_abandoned(self) -> None:
        """Delete what processes that were killed did not publish; one that runs keeps its files.

        Raises:
            OSError: it cannot be deleted.
        """
        for old in self.folder.glob(f"{_PARTIAL}*"):
            if not psutil.pid_exists(int(old.name.removeprefix(_PARTIAL).partition("-")[0])):
                shutil.rmtree(old)

    def discard(self, partial: Path) -> None:
        """Remove what will not be published."""
        shutil.rmtree(partial, ignore_errors=True)

    def next_number(self) -> int:
        """The number that the next version gets."""
        return self._last_number() + 1

    def publish(self, partial: Path, version: Version) -> None:
        """Make the files in `partial` version `version.number`, which drafts from now on.

        Raises:
            StoreError: they cannot be written; the current version stays.
        """
        try:
            write_atomic(partial / VERSION_FILE, [json.dumps(asdict(version))])
            os.rename(partial, self.folder / f"{version.number:04d}")
            self.select(version.number)
            self._prune()
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error

    def select(self, number: int) -> None:
        """Let a version draft; 0 for the original draft model.

        Raises:
            StoreError: there is no such version, or the folder cannot be written.
        """
        if number and number not in self._numbers():
            raise StoreError(f"there is no version {number} in {self.folder}")
        if not number and not self.folder.exists():
            return
        noted = {"version": number, "last": self._last_number()}
        try:
            write_atomic(self.folder / CURRENT_FILE, [json.dumps(noted)])
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error

    def note(self, attempt: Attempt) -> None:
        """Remember how a round ended.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            write_atomic(self.folder / ATTEMPT_FILE, [json.dumps(asdict(attempt))])
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error

    def last_attempt(self) -> Attempt | None:
        """How the last round ended; None if there was none, or if the note is damaged."""
        try:
            return Attempt(**json.loads((self.folder / ATTEMPT_FILE).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def rollback(self) -> int:
        """Step back to the version before the current one; returns its number.

        Raises:
            StoreError: no version drafts, or the folder cannot be written.
        """
        current = self.current
        if not current:
            raise StoreError("no learned version is in use: there is nothing to roll back")
        number = max((each for each in self._numbers() if each < current), default=0)
        self.select(number)
        return number

    def reset(self) -> None:
        """Delete every version; the original draft model drafts again.

        Raises:
            StoreError: one cannot be deleted.
        """
        self.select(0)
        try:
            for number in self._numbers():
                self.delete(number)
            (self.folder / ATTEMPT_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot delete from {self.folder}: {error.strerror}") from error

    def delete(self, number: int) -> None:
        """Delete a version: all of it, since a process that is killed meanwhile leaves what the
        next one deletes.

        Raises:
            OSError: it cannot be deleted.
        """
        gone = self.folder / f"{_PARTIAL}{os.getpid()}-{number}"
        os.rename(self.folder / f"{number:04d}", gone)
        shutil.rmtree(gone)

    def _noted(self, key: str) -> int:
        """A number in `CURRENT_FILE`: 0 without the file, that of the latest version where it is
        damaged."""
        try:
            found: Any = json.loads((self.folder / CURRENT_FILE).read_text("utf-8"))
            return int(found[key])
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreError(f"cannot read {self.folder}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError):
            return max(self._numbers(), default=0)

    def _last_number(self) -> int:
        """The last number that a version had, even if it was deleted: statistics go by it."""
        return max(self._noted("last"), *self._numbers(), 0)

    def _numbers(self) -> list[int]:
        """Of all version folders, ascending."""
        names = (path.name for path in self.folder.glob("[0-9]*/"))
        return sorted(int(name) for name in names if name.isdecimal() and len(name) >= 4)

    def _read(self, number: int) -> Iterator[Version]:
        """The version of this number, unless its description is damaged."""
        path = self.folder / f"{number:04d}" / VERSION_FILE
        try:
            version = Version(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return
        if version.number == number and _is_typed(version):
            yield replace(version, figures=_present_figures(version.figures))

    def _is_intact(self, version: Version) -> bool:
        try:
            return fingerprint(self.file(version.number)) == version.fingerprint
        except ModelError:
            return False

    def _prune(self) -> None:
        for number in self._numbers()[:-KEPT]:
            if number != self.current:
                self.delete(number)


def _present_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """`figures` under the names they have now: earlier versions counted steps as calls."""
    return {name.replace("per_call", "per_step"): value for name, value in figures.items()}


def _is_typed(version: Version) -> bool:
    """Whether a version that was read has values of the right types where they are used."""
    texts = (version.fingerprint, version.origin, version.buffer)
    numbers = (version.parent, version.last_record, version.last_removal)
    return (
        all(type(text) is str for text in texts)
        and all(type(number) is int for number in numbers)
        and isinstance(version.created, int | float)
        and isinstance(version.figures, dict)
    )
