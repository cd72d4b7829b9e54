"""Versions of the draft models and heads trained on this machine: where they are, what they
learned, and which are deleted because something they learned from was deleted.

Each pair of target and draft model has a folder, and so has each head; `engines.distillation`
trains the versions.
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
"""Folder of a head, next to those of draft models, which have fingerprints as names."""
CHECKPOINTS = ("*.safetensors", "*.new")
"""Half-trained weights in the folder of versions; the second pattern is of interrupted writes."""


def versions_of(locations: Locations, target: str, draft_model: Path) -> Versions:
    """The versions of the original draft model in the file `draft_model`, for the fingerprint
    `target`.

    Raises:
        ModelError: the file cannot be read.
    """
    return Versions(locations.draft_models / target / fingerprint(draft_model))


def head_versions(locations: Locations, target: str) -> Versions:
    """The versions of the draft head of the fingerprint `target`."""
    return Versions(locations.draft_models / target / HEAD_FOLDER, HEAD_FILE)


MIN_NEW_ANSWERS = 25
"""Fewest new answers worth a training; some of them are held out to measure it."""
PATIENCE = 3
"""Trainings in a row without a gain after which each further one waits for twice as many answers,
since a head may pay off with more history."""


@dataclass(frozen=True, slots=True)
class NewAnswers:
    """The answers that the next training waits for.

    Attributes:
        count: answers since the last training.
        fruitless: trainings in a row without a gain.
        reason: why the last of them had none.
    """

    count: int = 0
    fruitless: int = 0
    reason: str = ""

    @property
    def needed(self) -> int:
        """Answers needed to begin."""
        return MIN_NEW_ANSWERS << max(0, self.fruitless - PATIENCE + 1)

    @property
    def missing(self) -> int:
        """Answers still missing."""
        return max(0, self.needed - self.count)

    @property
    def halted(self) -> str:
        """Why training waits for more answers than usual; empty if it does not."""
        if self.fruitless < PATIENCE:
            return ""
        return f"no gain in the last {self.fruitless} trainings"


@dataclass(frozen=True, slots=True)
class LearningHistory:
    """What the draft model or head of one target has learned.

    Attributes:
        versions: oldest first; their `figures` are of held-out questions.
        current: number of the version that drafts; 0 for the original draft model.
        answers: number of answers in the replay buffer.
        bytes: their size, with their states.
        attempt: how the last training ended.
    """

    versions: list[Version] = field(default_factory=list)
    current: int = 0
    answers: int = 0
    bytes: int = 0
    attempt: Attempt | None = None


def learning_history(locations: Locations, target: str, versions: Versions) -> LearningHistory:
    """What a draft model or head with `versions` has learned for the fingerprint `target`.

    Raises:
        StoreError: its versions or the answers cannot be read.
    """
    answers = size = 0
    path = replay_path(locations, target)
    # There is no buffer before the first record.
    with suppress(FileNotFoundError), closing(ReplayBuffer.existing(path)) as buffer:
        answers, size = buffer.size, buffer.total_bytes + buffer.state_bytes
    return LearningHistory(versions.all(), versions.current, answers, size, versions.last_attempt())


def learning_histories(locations: Locations) -> dict[str, LearningHistory]:
    """What a draft model has learned, or can learn, for each target, by its fingerprint.

    If a target has several draft models, the one trained last.

    Raises:
        StoreError: versions or answers cannot be read.
    """
    # Targets without versions have no folder yet.
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
    """Answers recorded for the fingerprint `target` since the last training of `versions`.

    Args:
        with_states: count only those whose states were kept.

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
    """The target's fingerprint, `draft model` or `draft head`, and the reason, for each halted
    training.

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
    """The replay buffer of the fingerprint `target`."""
    return locations.replay / f"{target}.db"


def drop_tainted(locations: Locations) -> None:
    """Delete every version and checkpoint that may have learned from removed records.

    A version with a damaged description may have learned from anything. An earlier version, or the
    original draft model, drafts instead, and the next training starts from it.

    Raises:
        StoreError: one cannot be deleted; calling this again completes the work.
    """
    for folder in sorted(locations.draft_models.glob("*/*/")):
        versions = Versions(folder)
        path = replay_path(locations, folder.parent.name)
        tainted = set(_tainted(versions, path))
        if tainted:
            drop(versions, tainted)
        _drop_unpublished(versions, path)


def drop(versions: Versions, tainted: Collection[int]) -> None:
    """Delete the versions with the numbers `tainted`, and checkpoints, which may have learned from
    the same records.

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
        # The next round learns from all records again.
        (versions.folder / ATTEMPT_FILE).unlink(missing_ok=True)
        for checkpoint in _checkpoints(versions):
            checkpoint.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot delete from {versions.folder}: {error.strerror}") from error


def _checkpoints(versions: Versions) -> list[Path]:
    return [path for pattern in CHECKPOINTS for path in versions.folder.glob(pattern)]


def _drop_unpublished(versions: Versions, path: Path) -> None:
    """Delete checkpoints from before the last removal from the buffer at `path`, and exports of
    killed rounds."""
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
    """Numbers of the versions that may have learned from records removed from the buffer at `path`:
    all of them if it is not the buffer that they learned from."""
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
