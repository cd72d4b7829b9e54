"""Finds the files under the paths that the person gave.

`.gitignore` is respected (`ignore_rules`), symbolic links are not followed, and names that are
none of the person's texts (`skipped_names`) are left out. Files come in the order of their names,
so that an interrupted import resumes where it stopped.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.ignore_rules import IgnoreRules, rules_above
from app.importing.skipped_names import (
    EXPORT_COMPANIONS,
    OF_A_PROGRAM,
    PART_OF_EXPORT,
    PROGRAM_FOLDER_MARKS,
    holds_export,
    is_left_behind,
    skip_reason,
)

READ_FAILURE = "cannot be read"
"""Prefix of the reason for what exists but cannot be read."""

NOT_REGULAR = "not a regular file"
"""Reason for a pipe, a socket or a device, which may never end."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to import; `size` is in bytes, `changed` its modification time in nanoseconds."""

    import_path: str
    name: str
    path: Path
    size: int
    changed: int = 0


def expanded(path: Path) -> Path:
    """`path` with `~` expanded; unchanged where there is no such user."""
    return Path(os.path.expanduser(path))


def import_path_of(path: Path) -> str:
    """The name of the import from `path`."""
    return storable_name(os.path.realpath(expanded(path)))


def find_files(path: Path, own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    """Every file in `path`, a file or a folder, in the order of names.

    Args:
        own: specchat's own directories, which are skipped: they grow with every import.
    """
    try:
        root = Path(os.path.abspath(expanded(path)))
        mode = root.stat().st_mode
    except OSError as error:
        yield SkippedFile(storable_name(str(path)), read_failure(error))
        return
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        # Not resolved: /dev/stdin may lead to no path at all.
        yield SkippedFile(storable_name(str(path)), NOT_REGULAR)
        return
    root = root.resolve()
    import_path = import_path_of(root)
    if not stat.S_ISDIR(mode):
        yield _file(import_path, root, root.name)
    elif root in own:
        yield SkippedFile(import_path, "specchat's own data")
    else:
        yield from _folder(import_path, root, own)


def _folder(
    import_path: str, root: Path, own: frozenset[Path]
) -> Iterator[FoundFile | SkippedFile]:
    """Depth first, with a list instead of recursion: folders may nest deeper than the stack."""
    waiting = [(root, rules_above(root))]
    while waiting:
        folder, rules = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield SkippedFile(_name(folder, root), read_failure(error))
            continue
        names = {entry.name for entry in entries}
        if folder != root and names & PROGRAM_FOLDER_MARKS:
            yield SkippedFile(_name(folder, root), OF_A_PROGRAM)
            continue
        rules = rules.within(folder)
        below = []
        exported = holds_export(names)
        for entry in entries:
            path, is_folder = Path(entry.path), os.path.isdir(entry.path) and not entry.is_symlink()
            if is_left_behind(entry.name, is_folder):
                continue
            reason = _skip_reason(path, is_folder, rules, own)
            if exported and entry.name in EXPORT_COMPANIONS:
                reason = PART_OF_EXPORT
            if reason:
                yield SkippedFile(_name(path, root), reason)
            elif is_folder:
                below.append((path, rules))
            else:
                yield _file(import_path, path, str(path.relative_to(root)))
        waiting.extend(reversed(below))


def _file(import_path: str, path: Path, name: str) -> FoundFile | SkippedFile:
    name = storable_name(name)
    try:
        status = path.stat()
    except OSError as error:
        return SkippedFile(name, read_failure(error))
    reason = skip_reason(path.name, folder=False)
    if reason:
        return SkippedFile(name, reason)
    # Opening a pipe would wait for a writer.
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(name, NOT_REGULAR)
    if not status.st_size:
        return SkippedFile(name, "empty")
    return FoundFile(import_path, name, path, status.st_size, status.st_mtime_ns)


def _skip_reason(path: Path, folder: bool, rules: IgnoreRules, own: frozenset[Path]) -> str:
    """Why an entry of a folder is skipped; empty if it is read."""
    if path.is_symlink():
        return _link_reason(path)
    if folder and path in own:
        return "specchat's own data"
    if rules.ignore(path, folder):
        return "ignored by .gitignore"
    return skip_reason(path.name, folder)


def _link_reason(path: Path) -> str:
    """Why a symbolic link is skipped: its target is found anyway, or was not asked for."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        # Python before 3.13 reports a loop as RuntimeError.
        loop = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        return "symbolic link in a loop" if loop else "broken symbolic link"
    return "symbolic link in a loop" if target in path.parents else "symbolic link"


def _name(path: Path, root: Path) -> str:
    return storable_name(str(path.relative_to(root))) if path != root else storable_name(str(root))


def storable_name(name: str) -> str:
    """A path as valid Unicode: bytes that are not UTF-8 are escaped as `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_failure(error: OSError) -> str:
    """The reason for skipping what the system cannot read."""
    return f"{READ_FAILURE}: {(error.strerror or str(error)).lower()}"
