"""Finds files and folders by a few letters of their path, and paths in dropped or pasted text.

The search covers what an import of one folder would read: `.gitignore` is respected, folders of
version control and of programs are left out. A path that is typed from the root, from `~` or from a
parent folder is completed folder by folder instead. Reading a large folder takes seconds.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from urllib.parse import unquote, urlparse

from app.importing.ignore_rules import rules_above
from app.importing.path_completion import MAX_ENTRIES, names_in
from app.importing.skipped_names import is_left_behind, skip_reason
from app.sanitise import clean

MAX_PATHS = 20_000
"""Most files and folders that are searched, those near the top first."""
MAX_AGE_S = 5.0
"""Time after which the folder is read again."""
MAX_DROPPED_CHARACTERS = 20_000
"""A longer text is not taken for a list of paths."""

_FROM_ELSEWHERE = re.compile(r"~?/|\.\.?/|~$|\.\.$")


class PathSearch:
    """Searches one folder. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: list[str] = []
        self._read_at = float("-inf")

    def find(self, typed: str, limit: int) -> list[str]:
        """At most `limit` paths that match what was typed, best first; folders end with a slash."""
        if _FROM_ELSEWHERE.match(typed):
            return names_in(typed)[:limit]
        if monotonic() - self._read_at > MAX_AGE_S:
            self._paths, self._read_at = list(_walk(self._folder)), monotonic()
        found = [(rank, path) for path in self._paths if (rank := match(typed, path)) is not None]
        return [path for _, path in sorted(found)[:limit]]


def match(typed: str, path: str) -> tuple[int, int, int] | None:
    """Rank of `path` for `typed`, lower is better; None if `typed` is not a subsequence of it.

    Best is a name or path that begins with it, then a name and then a path that contains it. Hidden
    files match only where `typed` has a part that begins with a dot.
    """
    wanted, whole = typed.lower(), path.lower().rstrip("/")
    name = whole.rpartition("/")[2]
    hidden = any(part.startswith(".") for part in whole.split("/"))
    if hidden and not any(part.startswith(".") for part in wanted.split("/")):
        return None
    letters = iter(whole)
    if name.startswith(wanted) or whole.startswith(wanted):
        kind = 0
    elif wanted in name:
        kind = 1
    elif wanted.rstrip("/") in whole:
        kind = 2
    elif all(letter in letters for letter in wanted):
        kind = 3
    else:
        return None
    return kind, whole.count("/"), len(whole)


def dropped_paths(text: str) -> list[Path]:
    """The paths in `text` if it consists of absolute paths of existing files alone, else none.

    Terminals paste a dropped file as its path, quoted, escaped or as a `file://` URL, several of
    them on one line or each on its own.
    """
    if len(text) > MAX_DROPPED_CHARACTERS or "\0" in text:
        return []
    paths: list[Path] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            words = [line] if _existing(line) else shlex.split(line)
        except ValueError:  # an unclosed quote
            return []
        found = [_existing(word) for word in words]
        if not words or None in found:
            return []
        paths += filter(None, found)
    return paths


def _existing(word: str) -> Path | None:
    """The absolute path in `word`, if such a file or folder exists."""
    if word.startswith("file://"):
        try:
            word = unquote(urlparse(word).path)
        except ValueError:  # brackets that are not an IPv6 address
            return None
    if not word.startswith(("/", "~/")) or "\0" in word:
        return None
    path = Path(os.path.expanduser(word))
    return path if os.path.exists(path) else None


def _walk(root: Path) -> Iterator[str]:
    """Paths under `root`, level by level."""
    waiting = deque([(root, "", rules_above(root))])
    left = MAX_PATHS
    while waiting and left > 0:
        folder, prefix, rules = waiting.popleft()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)[:MAX_ENTRIES]
        except OSError:
            continue  # nothing in an unreadable folder can be attached
        rules = rules.within(folder)
        for entry in entries:
            is_folder = os.path.isdir(entry.path) and not entry.is_symlink()
            hostile = clean(entry.name) != entry.name or "\n" in entry.name
            unwanted = is_left_behind(entry.name, is_folder) or (
                is_folder and skip_reason(entry.name, folder=True)
            )
            if hostile or unwanted or rules.ignore(Path(entry.path), is_folder):
                continue
            left -= 1
            yield f"{prefix}{entry.name}{'/' * is_folder}"
            if is_folder:
                waiting.append((Path(entry.path), f"{prefix}{entry.name}/", rules))
