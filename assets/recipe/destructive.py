"""Commands that destroy something, and the line that warns of each kind.

Owns the form of ``material/destructive.txt``.
"""

from __future__ import annotations

import re

from assets.recipe import read_lines


def _kinds() -> list[tuple[re.Pattern[str], str]]:
    parts = (line.rpartition(" => ") for line in read_lines("destructive.txt"))
    return [(re.compile(pattern), line) for pattern, _, line in parts]


_KINDS = _kinds()


def warning(command: str) -> str:
    """The line that warns of ``command``; empty where it destroys nothing."""
    for pattern, line in _KINDS:
        if pattern.search(command):
            return line
    return ""
