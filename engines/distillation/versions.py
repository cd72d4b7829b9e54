"""The trained versions of a draft model or head on disk, and which of them drafts.

    folder/0007/draft-model.gguf    the weights; of a head, head.safetensors
    folder/0007/version.json        a `Version`
    folder/current.json             the number of the current version, 0 for the original draft
                                    model, and the last number given
    folder/attempt.json             the last `Attempt`

A version is published as a whole, by one rename, and the latest three are kept. Imports no torch.
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
"""Versions kept for rollback."""
DRAFT_MODEL_FILE, HEAD_FILE, VERSION_FILE = "draft-model.gguf", "head.safetensors", "version.json"
FORMER_DRAFT_MODEL_FILE = "student.gguf"
"""File name of the weights in earlier versions of specchat."""
CURRENT_FILE, ATTEMPT_FILE = "current.json", "attempt.json"
CHECKPOINT_SUFFIX = ".safetensors"
_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True)
class Version:
    """One trained version.

    Attributes:
        number: from 1 on, never reused.
        created: seconds since the epoch.
        fingerprint: of its file.
        origin: fingerprint of the draft model that the first version was trained from.
        parent: number of the version that it was trained from; 0 for the original draft model.
        buffer: identity of the replay buffer.
        last_record, last_removal: state of the buffer then, for `ReplayBuffer.removed_since`.
        figures: the gate's measurements by name, and the sampling settings that they are for.
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
    """Number and file fingerprint of the current version; unique together."""

    number: int
    fingerprint: str


ORIGINAL = VersionIdentity(0, "")
"""The original draft model, without a version."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last round.

    Attributes:
        ended: seconds since the epoch.
        buffer, last_record: what it saw, as in `Version`.
        version: number of the published version; 0 for none.
        reason: why there is none; empty otherwise.
        fruitless: consecutive rounds, up to this one, that trained and published nothing.
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
        weights_file: file name of each version's weights.
        """
        self.folder = folder
        self._weights_file = weights_file
        self._option = " --head" if weights_file == HEAD_FILE else ""

    def all(self) -> list[Version]:
        """Every complete version, oldest first; damaged ones are left out."""
        return [version for number in self._numbers() for version in self._read(number)]

    @property
    def damaged(self) -> list[int]:
        """Numbers of the versions whose description is damaged or missing, ascending."""
        return [number for number in self._numbers() if not list(self._read(number))]

    @property
    def current(self) -> int:
        """Number of the current version; 0 for the original draft model.

        If the selected one is gone, the last one before it; if `CURRENT_FILE` is damaged, the
        latest.

        Raises:
            StoreError: the folder cannot be read.
        """
        chosen = self._noted("version")
        return max((number for number in self._numbers() if number <= chosen), default=0)

    @property
    def current_identity(self) -> VersionIdentity:
        """The current version; `ORIGINAL` for the original draft model.

        Raises:
            StoreError: the folder cannot be read.
        """
        number = self.current
        return VersionIdentity(number, "".join(one.fingerprint for one in self._read(number)))

    def current_version(self) -> Version | None:
        """The current version; None for the original draft model.

        Raises:
            StoreError: it is damaged, or its file was replaced.
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
        """The checkpoint of a round on the replay buffer with this identity and state.

        After a removal no round resumes from it, and `drop_tainted` deletes it.
        """
        return self.folder / f"round-{buffer}-{last_removal}{CHECKPOINT_SUFFIX}"

    def partial(self) -> Path:
        """A new folder for the next version's files; end it with `publish` or `discard`.

        Raises:
            StoreError: it cannot be created.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in self.folder.glob(f"{_PARTIAL}*"):  # left by a killed process
                shutil.rmtree(old)
            path = self.folder / f"{_PARTIAL}{os.getpid()}"
            path.mkdir(mode=0o700)
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error
        return path

    def drop_abandoned(self) -> None:
        """Delete unpublished files of killed processes; running processes keep theirs.

        Raises:
            OSError: they cannot be deleted.
        """
        for old in self.folder.glob(f"{_PARTIAL}*"):
            if not psutil.pid_exists(int(old.name.removeprefix(_PARTIAL).partition("-")[0])):
                shutil.rmtree(old)

    def discard(self, partial: Path) -> None:
        """Delete the files of a version that is not published."""
        shutil.rmtree(partial, ignore_errors=True)

    def next_number(self) -> int:
        """The number of the next version."""
        return self._last_number() + 1

    def publish(self, partial: Path, version: Version) -> None:
        """Make the files in `partial` version `version.number`, and the current one.

        Raises:
            StoreError: they cannot be written; the current version is unchanged.
        """
        try:
            write_atomic(partial / VERSION_FILE, [json.dumps(asdict(version))])
            os.rename(partial, self.folder / f"{version.number:04d}")
            self.select(version.number)
            self._prune()
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error

    def select(self, number: int) -> None:
        """Make a version the current one; 0 for the original draft model.

        Raises:
            StoreError: there is no such version, or the folder cannot be written.
        """
        if number and number not in self._numbers():
            raise StoreError(f"there is no version {number} in {self.folder}")
        if not number and not self.folder.exists():
            return
        self._write(CURRENT_FILE, {"version": number, "last": self._last_number()})

    def note(self, attempt: Attempt) -> None:
        """Record the result of a round.

        Raises:
            StoreError: it cannot be written.
        """
        self._write(ATTEMPT_FILE, asdict(attempt))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        try:
            write_atomic(self.folder / name, [json.dumps(content)])
        except OSError as error:
            raise StoreError(f"cannot write to {self.folder}: {error.strerror}") from error

    def last_attempt(self) -> Attempt | None:
        """The result of the last round; None if there was none, or if the record is damaged."""
        try:
            return Attempt(**json.loads((self.folder / ATTEMPT_FILE).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def rollback(self) -> int:
        """Return to the version before the current one; returns its number.

        Raises:
            StoreError: no version is in use, or the folder cannot be written.
        """
        current = self.current
        if not current:
            raise StoreError("no learned version is in use: there is nothing to roll back")
        number = max((each for each in self._numbers() if each < current), default=0)
        self.select(number)
        return number

    def reset(self) -> None:
        """Delete every version and return to the original draft model.

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
        """Delete a version. It is renamed first, so that the rest is deleted later if this process
        is killed.

        Raises:
            OSError: it cannot be deleted.
        """
        gone = self.folder / f"{_PARTIAL}{os.getpid()}-{number}"
        os.rename(self.folder / f"{number:04d}", gone)
        shutil.rmtree(gone)

    def _noted(self, key: str) -> int:
        """A number in `CURRENT_FILE`: 0 without the file, the latest version's if it is damaged."""
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
        """The last number given, even if its version was deleted, since statistics refer to it."""
        return max(self._noted("last"), *self._numbers(), 0)

    def _numbers(self) -> list[int]:
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
    """`figures` under their present names: earlier versions counted steps as calls."""
    return {name.replace("per_call", "per_step"): value for name, value in figures.items()}


def _is_typed(version: Version) -> bool:
    """Whether the values of a version that was read have the required types."""
    texts = (version.fingerprint, version.origin, version.buffer)
    numbers = (version.parent, version.last_record, version.last_removal)
    return (
        all(type(text) is str for text in texts)
        and all(type(number) is int for number in numbers)
        and isinstance(version.created, int | float)
        and isinstance(version.figures, dict)
    )
