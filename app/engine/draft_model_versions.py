"""Versions of the draft models and heads that learned on this machine: where they are, what they
learned, and which must go because something they learned from was deleted.

Owns the folder of each pair of target and draft model, and of each head, and the bond between
versions and replay buffer. Refuses to know how versions are trained (`engines.distillation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.locations import Locations
from datastores.errors import StoreError
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.versions import ATTEMPT_FILE, HEAD_FILE, Attempt, Version, Versions
from engines.fingerprint import fingerprint

HEAD_FOLDER = "head"
"""Beside the folders of draft models, which are called by their fingerprints."""
CHECKPOINTS = ("*.safetensors", "*.new")
"""Half-trained weights, in the folder of versions; the second of a write that was killed."""


def versions_of(locations: Locations, target: str, draft_model: Path) -> Versions:
    """The versions of the original draft model in the file `draft_model`, for the target of a
    fingerprint.

    Raises:
        ModelError: the file cannot be read.
    """
    return Versions(locations.draft_models / target / fingerprint(draft_model))


def head_versions(locations: Locations, target: str) -> Versions:
    """The versions of the draft head of the target of a fingerprint."""
    return Versions(locations.draft_models / target / HEAD_FOLDER, HEAD_FILE)


MIN_NEW_ANSWERS = 25
"""New answers from which on training is worth its time; some of them are held out to measure it."""
PATIENCE = 3
"""Trainings in a row without a gain after which each further one waits for twice as many answers:
with more history a head may pay after all, and no machine is kept warm for nothing."""


@dataclass(frozen=True, slots=True)
class NewAnswers:
    """The answers that the next training waits for.

    Attributes:
        count: that came since the last one.
        fruitless: trainings in a row that brought nothing. reason: why the last of them did not.
    """

    count: int = 0
    fruitless: int = 0
    reason: str = ""

    @property
    def needed(self) -> int:
        """Answers with which it begins."""
        return MIN_NEW_ANSWERS << max(0, self.fruitless - PATIENCE + 1)

    @property
    def missing(self) -> int:
        """Answers until then."""
        return max(0, self.needed - self.count)

    @property
    def halted(self) -> str:
        """Why training waits for more answers than usual; empty if it does not."""
        if self.fruitless < PATIENCE:
            return ""
        return f"no gain in the last {self.fruitless} trainings"


@dataclass(frozen=True, slots=True)
class LearningHistory:
    """What the draft model or head of one target learned so far.

    Attributes:
        versions: oldest first; their `figures` say what each brought on held-out questions.
        current: number of the one that drafts; 0 for the original draft model.
        answers: recorded and kept to learn from; bytes: that they take, with their states.
        attempt: how the last training ended; None before the first.
    """

    versions: list[Version] = field(default_factory=list)
    current: int = 0
    answers: int = 0
    bytes: int = 0
    attempt: Attempt | None = None


def learning_history(locations: Locations, target: str, versions: Versions) -> LearningHistory:
    """What a draft model or head with `versions` learned for the target of a fingerprint.

    Raises:
        StoreError: its versions or the answers cannot be read.
    """
    answers = size = 0
    path = replay_path(locations, target)
    # There is none before the first record.
    with suppress(FileNotFoundError), closing(ReplayBuffer.existing(path)) as buffer:
        answers, size = buffer.size, buffer.total_bytes + buffer.state_bytes
    return LearningHistory(versions.all(), versions.current, answers, size, versions.last_attempt())


def learning_histories(locations: Locations) -> dict[str, LearningHistory]:
    """By the target's fingerprint: what a draft model learned for it, or has answers to learn from.

    If several draft models learned for one target, the one that learned last.

    Raises:
        StoreError: versions or answers cannot be read.
    """
    # A target without versions yet has no such folder.
    recorded = (path.stem for path in sorted(locations.replay.glob("*.db")))
    folders = {target: locations.draft_models / target for target in recorded}
    for folder in sorted(locations.draft_models.glob("*/*/"), key=lambda one: one.stat().st_mtime):
        if folder.name != HEAD_FOLDER:
            folders[folder.parent.name] = folder
    return {
        target: learning_history(locations, target, Versions(folder))
        for target, folder in folders.items()
    }


def new_answers(
    locations: Locations, target: str, versions: Versions, *, with_states: bool = False
) -> NewAnswers:
    """Answers recorded since the last training of what has `versions`.

    Args:
        target: fingerprint of the target. with_states: count only those whose states were kept.

    Raises:
        StoreError: the answers cannot be read.
    """
    path = replay_path(locations, target)
    with suppress(FileNotFoundError), closing(ReplayBuffer.existing(path)) as buffer:
        attempt = versions.last_attempt()
        if attempt is None or attempt.buffer != buffer.identity:
            return NewAnswers(buffer.count_after(0, with_states=with_states))
        count = buffer.count_after(attempt.last_record, with_states=with_states)
        return NewAnswers(count, attempt.fruitless, attempt.reason)
    return NewAnswers()


def halted_learning(locations: Locations) -> Iterator[tuple[str, str, str]]:
    """What no longer trains: a target's fingerprint, `draft model` or `draft head`, and why.

    Raises:
        StoreError: versions or answers cannot be read.
    """
    for folder in sorted(locations.draft_models.glob("*/*/")):
        target, is_head = folder.parent.name, folder.name == HEAD_FOLDER
        new = new_answers(locations, target, Versions(folder), with_states=is_head)
        if new.halted and new.missing:
            name = "draft head" if is_head else "draft model"
            yield target, name, f"{new.halted} ({new.reason})"


def replay_path(locations: Locations, target: str) -> Path:
    """The replay buffer of the target of a fingerprint."""
    return locations.replay / f"{target}.db"


def drop_tainted(locations: Locations) -> None:
    """Delete every version, and every half-trained one, that may know what was removed since.

    One whose description is damaged may know anything that was ever removed. What is left drafts:
    an earlier version, or the original draft model. The next training starts from there, on all
    that is still in the buffer.

    Raises:
        StoreError: one cannot be deleted; calling this again does.
    """
    for folder in sorted(locations.draft_models.glob("*/*/")):
        versions = Versions(folder)
        path = replay_path(locations, folder.parent.name)
        tainted = set(_tainted(versions, path))
        if tainted:
            drop(versions, tainted)
        _drop_unpublished(versions, path)


def drop(versions: Versions, tainted: Collection[int]) -> None:
    """Delete the versions with the numbers `tainted`, and what is left of a training that may have
    seen the same.

    Raises:
        StoreError: one cannot be deleted.
    """
    if versions.current in tainted:
        kept = [one.number for one in versions.all() if one.number not in tainted]
        earlier = [number for number in kept if number < versions.current]
        versions.select(max(earlier, default=0))
    try:
        for number in tainted:
            versions.delete(number)
        # The next round must not take what it saw before for learned.
        (versions.folder / ATTEMPT_FILE).unlink(missing_ok=True)
        for checkpoint in _checkpoints(versions):
            checkpoint.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot delete from {versions.folder}: {error.strerror}") from error


def _checkpoints(versions: Versions) -> list[Path]:
    return [path for pattern in CHECKPOINTS for path in versions.folder.glob(pattern)]


def _drop_unpublished(versions: Versions, path: Path) -> None:
    """Delete what rounds began before the last removal from the buffer at `path`, and what rounds
    that were killed had exported."""
    found, current = _checkpoints(versions), None
    if found:
        with suppress(FileNotFoundError), closing(ReplayBuffer.existing(path)) as buffer:
            current = versions.checkpoint(buffer.identity, buffer.last_removal)
    try:
        versions.drop_abandoned()
        for checkpoint in found:
            if current is None or checkpoint.stem != current.stem:
                checkpoint.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot delete from {versions.folder}: {error.strerror}") from error


def _tainted(versions: Versions, path: Path) -> Iterator[int]:
    """Numbers of the versions that may know what was removed from the buffer at `path`.

    Without the buffer that they learned from nobody can say what they know.
    """
    every, damaged = versions.all(), versions.damaged
    if not every and not damaged:
        return
    with suppress(FileNotFoundError), closing(ReplayBuffer.existing(path)) as buffer:
        for version in every:
            known = version.buffer == buffer.identity
            if not known or buffer.removed_since(version.last_record, version.last_removal):
                yield version.number
        if buffer.last_removal:
            yield from damaged
        return
    yield from (version.number for version in every)
    yield from damaged
