"""Paths as a person types them into one line: read, and completed.

Words are told apart as in a shell: by spaces, unless quoted or behind a backslash. A line that is
the path of something is that one path, spaces and all. Looks into folders; changes nothing.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from app.sanitise import clean

MAX_ENTRIES = 2000
"""Entries of one folder that are looked at: what is typed next narrows it down anyway."""

_SPECIAL = re.compile(r"""([\s\\'"])""")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a line may become.

    Attributes:
        line: it, as far as there is no choice; the same line where nothing fits.
        names: what there is to choose from, folders with a slash at their end.
    """

    line: str
    names: tuple[str, ...]


def paths_of(line: str) -> list[Path]:
    """The paths in `line`, `~` expanded; none in an empty one."""
    line = line.replace("\0", "")
    whole = line.strip()
    if os.path.exists(os.path.expanduser(whole)):
        words = [whole]
    else:
        try:
            words = shlex.split(line)
        except ValueError:  # a quote that is never closed
            words = [whole]
    return [Path(os.path.expanduser(word)) for word in words]


def completion(line: str) -> Completion:
    """Complete the last path in `line`; reads one folder."""
    line = line.replace("\0", "").lstrip()
    if not line:
        return Completion(line, ())
    start, word = 0, line
    names = _names(word)
    if not names:
        start, word = _last_word(line)
        names = _names(word)
    if not names:
        return Completion(line, ())
    common = _folder(word) + os.path.commonprefix(names)  # noqa: RUF071  (characters are meant)
    return Completion(line[:start] + _SPECIAL.sub(r"\\\1", common), tuple(names))


def _names(path: str) -> list[str]:
    """What is in the folder of `path` and begins like its last part, if a screen can show it."""
    if path == "~":
        return ["~/"]
    prefix = path.removeprefix(_folder(path))
    names = []
    try:
        with os.scandir(os.path.expanduser(_folder(path)) or ".") as entries:
            for entry in islice(entries, MAX_ENTRIES):
                hidden = entry.name.startswith(".") and not prefix.startswith(".")
                hostile = clean(entry.name) != entry.name
                if entry.name.startswith(prefix) and not hidden and not hostile:
                    names.append(entry.name + "/" * entry.is_dir())
    except OSError:
        # Nothing can be offered: there is no such folder (yet), or it may not be looked into.
        return []
    return sorted(names)


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _last_word(line: str) -> tuple[int, str]:
    """Where the last word of `line` begins, and the word without quotes and backslashes."""
    start, word, quote, escaped = 0, "", "", False
    for place, character in enumerate(line):
        if escaped or (quote and character not in (quote, "\\")):
            word, escaped = word + character, False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote or character in "'\"":
            quote = "" if quote else character
        elif character.isspace():
            start, word = place + 1, ""
        else:
            word += character
    return start, word
