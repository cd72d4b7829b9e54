"""Finds the files under the paths that the person gave.

Owns which files are read: `.gitignore` is respected (`ignore_rules`), symbolic links are not
followed, and files that hold secrets by their names are skipped. The order is that of names, so
that an interrupted import continues where it was. Refuses to know formats.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.ignore_rules import IgnoreRules, rules_above

VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
CACHES = frozenset(
    {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".ipynb_checkpoints"}
)
CLUTTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""What programs leave behind, which nobody misses: skipped without a word."""

SECRET_NAMES = (
    ".env",
    ".env.*",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "*.keystore",
)
"""Files made to hold secrets, in forms that redaction does not recognise."""

CONVERSATIONS_FILE = re.compile(r"conversations(-\d+)?\.json")
"""The file with the chats of an export of ChatGPT or Claude."""

READ_FAILURE = "cannot be read"
"""Begins the reason for what exists but cannot be read."""

NOT_REGULAR = "not a regular file"
"""A pipe, a socket or a device, which is not opened: it may never end."""

PART_OF_EXPORT = "beside the chats of an export"
EXPORT_COMPANIONS = frozenset(
    {
        "chat.html",
        "user.json",
        "users.json",
        "user_settings.json",
        "export_manifest.json",
        "memories.json",
        "message_feedback.json",
        "model_comparisons.json",
        "shared_conversations.json",
    }
)
"""The other files of an unpacked export: the same chats again, or data about the person."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to import, with the path of its source and its name within that.

    Attributes:
        size: in bytes.
        changed: when it was changed last, in nanoseconds.
    """

    source: str
    name: str
    path: Path
    size: int
    changed: int = 0


def expanded(path: Path) -> Path:
    """`path` with `~` as the home directory; as it is where there is no such user."""
    return Path(os.path.expanduser(path))


def source_of(path: Path) -> str:
    """The name of the source that is imported from `path`."""
    return storable_name(os.path.realpath(expanded(path)))


def find_files(path: Path, own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    """Every file in `path`, a file or a folder, in the order of names.

    `own`: specchat's own directories, which are skipped; importing them would never end.
    """
    root = Path(os.path.abspath(expanded(path)))
    try:
        mode = root.stat().st_mode
    except OSError as error:
        yield SkippedFile(storable_name(str(path)), read_failure(error))
        return
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        # Not resolved: behind /dev/stdin, there may be no path at all.
        yield SkippedFile(storable_name(str(path)), NOT_REGULAR)
        return
    root = root.resolve()
    source = source_of(root)
    if not stat.S_ISDIR(mode):
        yield _file(source, root, root.name)
    elif root in own:
        yield SkippedFile(source, "specchat's own data")
    else:
        yield from _folder(source, root, own)


def _folder(source: str, root: Path, own: frozenset[Path]) -> Iterator[FoundFile | SkippedFile]:
    """Depth first, with a list instead of recursion: folders nest deeper than the stack."""
    waiting = [(root, rules_above(root))]
    while waiting:
        folder, rules = waiting.pop()
        try:
            rules = rules.within(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield SkippedFile(_name(folder, root), read_failure(error))
            continue
        below = []
        exported = any(CONVERSATIONS_FILE.fullmatch(entry.name) for entry in entries)
        for entry in entries:
            if _is_silent(entry):
                continue
            reason = _skip_reason(entry, rules, own)
            if exported and entry.name in EXPORT_COMPANIONS:
                reason = PART_OF_EXPORT
            if reason:
                yield SkippedFile(_name(Path(entry.path), root), reason)
            elif entry.is_dir(follow_symlinks=False):
                below.append((Path(entry.path), rules))
            else:
                path = Path(entry.path)
                yield _file(source, path, str(path.relative_to(root)))
        waiting.extend(reversed(below))


def _file(source: str, path: Path, name: str) -> FoundFile | SkippedFile:
    name = storable_name(name)
    try:
        status = path.stat()
    except OSError as error:
        return SkippedFile(name, read_failure(error))
    if any(fnmatchcase(path.name.lower(), pattern) for pattern in SECRET_NAMES):
        return SkippedFile(name, "usually holds secrets")
    # Opening a pipe would wait for a writer.
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(name, NOT_REGULAR)
    if not status.st_size:
        return SkippedFile(name, "empty")
    return FoundFile(source, name, path, status.st_size, status.st_mtime_ns)


def _is_silent(entry: os.DirEntry[str]) -> bool:
    """Whether to skip an entry without a word."""
    if entry.is_dir(follow_symlinks=False):
        return entry.name in VERSION_CONTROL or entry.name in CACHES
    return entry.name in CLUTTER or entry.name.endswith(".pyc")


def _skip_reason(entry: os.DirEntry[str], rules: IgnoreRules, own: frozenset[Path]) -> str:
    """Why an entry of a folder is skipped; empty if it is not."""
    if entry.is_symlink():
        return _link_reason(Path(entry.path))
    folder = entry.is_dir(follow_symlinks=False)
    if folder and Path(entry.path) in own:
        return "specchat's own data"
    if rules.ignore(Path(entry.path), folder):
        return "ignored by .gitignore"
    return ""


def _link_reason(path: Path) -> str:
    """Why a symbolic link is skipped: its target is in the folder, or was not named."""
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
    """A path as text that can be stored: bytes that are not UTF-8 are escaped as `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def read_failure(error: OSError) -> str:
    """The system's error as a reason."""
    return f"{READ_FAILURE}: {(error.strerror or str(error)).lower()}"
