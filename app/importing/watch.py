"""Watched imports: what changed in a folder since it was looked at last.

Folders are polled: sizes and times of change are compared, nothing is read, and how often is bound
by what a look costs. Owns what counts as changed and as removed, and when a folder is left alone: a
drive that is not mounted looks like a folder without files, and must not erase what was imported
from it. Refuses to know who imports and deletes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.find_files import READ_FAILURE, find_files
from datastores.errors import InputError

MAX_WATCHED_FILES = 100_000
"""Files of one import that are still looked through every few seconds."""
MIN_INTERVAL_S, MAX_INTERVAL_S = 2.0, 300.0
"""Bounds of the time between two looks."""
COST_SHARE = 0.05
"""Of one core, that looking may take."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """What an import looked like.

    Attributes:
        files: size in bytes and time of change in nanoseconds, by name.
        unreadable: names of files and folders that could not be read just now.
    """

    files: Mapping[str, tuple[int, int]]
    unreadable: Set[str] = field(default_factory=frozenset)

    def may_hold(self, name: str) -> bool:
        """Whether `name` may still be there, in what could not be read."""
        return any(name == one or name.startswith(f"{one}/") for one in self.unreadable)


@dataclass(frozen=True, slots=True)
class FolderChange:
    """What to do about an import.

    Attributes:
        changed: names of new and changed files.
        removed: names of files that are stored but gone.
    """

    changed: frozenset[str]
    removed: frozenset[str]


def look(import_path: str, own: frozenset[Path]) -> FolderState:
    """What the files of `import_path` look like now; its folders are listed, no file is read.

    Raises:
        InputError: it is gone or cannot be read, or holds too many files.
    """
    root = Path(import_path)
    if not root.exists():
        raise InputError(f"{import_path} is gone; its imported texts are kept")
    files: dict[str, tuple[int, int]] = {}
    unreadable = set()
    for found in find_files(root, own):
        if isinstance(found, SkippedFile):
            if not found.reason.startswith(READ_FAILURE):
                continue
            if found.name == import_path:
                raise InputError(f"{import_path} {found.reason}; its imported texts are kept")
            unreadable.add(found.name)
            continue
        files[found.name] = found.size, found.changed
        if len(files) > MAX_WATCHED_FILES:
            raise InputError(
                f"{import_path} holds more than {MAX_WATCHED_FILES:,} files: watch a smaller folder"
            )
    return FolderState(files, frozenset(unreadable))


def compare(
    import_path: str, before: FolderState | None, now: FolderState, stored: Set[str]
) -> FolderChange:
    """What changed in `import_path` since `before`; None: since an earlier session, so all may
    have.

    Args:
        stored: names of its files in the library.

    Raises:
        InputError: every stored file is gone at once.
    """
    removed = {name for name in stored if name not in now.files and not now.may_hold(name)}
    if stored and len(removed) == len(stored) and not now.files:
        raise InputError(
            f"{import_path} has lost all of its files; its imported texts are kept"
            " (`specchat forget` removes them)"
        )
    known = before.files if before is not None else {}
    changed = {name for name, state in now.files.items() if known.get(name) != state}
    return FolderChange(frozenset(changed), frozenset(removed))


def interval(cost_s: float) -> float:
    """Seconds until the next look, after one that took `cost_s` of processor time."""
    return min(max(cost_s / COST_SHARE, MIN_INTERVAL_S), MAX_INTERVAL_S)
