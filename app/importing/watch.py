"""Watched imports: what changed in a folder since the last scan.

Folders are polled: sizes and modification times are compared, no file is read, and the interval
grows with the cost of a scan. An unmounted drive looks like an empty folder and must not erase what
was imported from it, so a folder that loses all its files is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.find_files import READ_FAILURE, find_files
from datastores.errors import InputError

MAX_WATCHED_FILES = 100_000
"""Most files of one import that can be scanned every few seconds."""
MIN_INTERVAL_S, MAX_INTERVAL_S = 2.0, 300.0
"""Bounds of the time between two scans."""
COST_SHARE = 0.05
"""Share of one core that scanning may take."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """The files of an import at one scan.

    Attributes:
        files: name → size in bytes and modification time in nanoseconds.
        unreadable: names of files and folders that could not be read.
    """

    files: Mapping[str, tuple[int, int]]
    unreadable: Set[str] = field(default_factory=frozenset)

    def may_hold(self, name: str) -> bool:
        """Whether `name` may still exist within what could not be read."""
        return any(name == one or name.startswith(f"{one}/") for one in self.unreadable)


@dataclass(frozen=True, slots=True)
class FolderChange:
    """Names of new and changed files, and of stored files that are gone."""

    changed: frozenset[str]
    removed: frozenset[str]


def look(import_path: str, own: frozenset[Path]) -> FolderState:
    """The current state of `import_path`; its folders are listed, no file is read.

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
    """What changed in `import_path` since `before`.

    Args:
        before: None at the first scan of a session: then every file may have changed.
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
    """Seconds until the next scan, after one that took `cost_s` of CPU time."""
    return min(max(cost_s / COST_SHARE, MIN_INTERVAL_S), MAX_INTERVAL_S)
