"""Parses and completes paths typed into one line.

Words are separated as in a shell: by spaces, unless quoted or escaped. A line that is an existing
path is that one path, spaces included.
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
"""Most entries of one folder that are read: the next characters typed narrow them down."""

_SPECIAL = re.compile(r"""([\s\\'"])""")


@dataclass(frozen=True, slots=True)
class PathCompletion:
    """The completion of a line.

    Attributes:
        line: completed as far as it is unambiguous; unchanged if nothing matches.
        names: the candidates; folders end with a slash.
    """

    line: str
    names: tuple[str, ...]


def paths_of(line: str) -> list[Path]:
    """The paths in `line`, with `~` expanded."""
    line = line.replace("\0", "")
    whole = line.strip()
    if os.path.exists(os.path.expanduser(whole)):
        words = [whole]
    else:
        try:
            words = shlex.split(line)
        except ValueError:  # an unclosed quote
            words = [whole]
    return [Path(os.path.expanduser(word)) for word in words]


def completion(line: str) -> PathCompletion:
    """Complete the last path in `line`; reads one folder."""
    line = line.replace("\0", "").lstrip()
    if not line:
        return PathCompletion(line, ())
    start, word = 0, line
    names = _names(word)
    if not names:
        start, word = _last_word(line)
        names = _names(word)
    if not names:
        return PathCompletion(line, ())
    common = _folder(word) + os.path.commonprefix(names)  # noqa: RUF071  (characters are meant)
    return PathCompletion(line[:start] + _SPECIAL.sub(r"\\\1", common), tuple(names))


def names_in(path: str) -> list[str]:
    """The existing paths in the folder of `path` that begin with it; folders end with a slash."""
    return [(_folder(path) if path != "~" else "") + name for name in _names(path)]


def _names(path: str) -> list[str]:
    """Entries of the folder of `path` that begin with its last component and can be displayed."""
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
                    names.append(entry.name + "/" * os.path.isdir(entry.path))
    except OSError:
        # Nothing to complete: the folder does not exist (yet), or cannot be read.
        return []
    return sorted(names)


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _last_word(line: str) -> tuple[int, str]:
    """The index of the last word of `line`, and the word without quotes and backslashes."""
    start, word, quote, escaped = 0, "", "", False
    for index, character in enumerate(line):
        if escaped or (quote and character not in (quote, "\\")):
            word, escaped = word + character, False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote or character in "'\"":
            quote = "" if quote else character
        elif character.isspace():
            start, word = index + 1, ""
        else:
            word += character
    return start, word
