"""Recognises destructive commands and words their warnings, as listed in ``destructive.txt``."""

from __future__ import annotations

import re

from assets.recipe import read_lines


def _kinds() -> list[tuple[re.Pattern[str], str]]:
    parts = (line.rpartition(" => ") for line in read_lines("destructive.txt"))
    return [(re.compile(pattern), line) for pattern, _, line in parts]


_KINDS = _kinds()


def warning(command: str) -> str:
    """The warning for ``command``; empty if it destroys nothing."""
    for pattern, line in _KINDS:
        if pattern.search(command):
            return line
    return ""
