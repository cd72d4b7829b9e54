"""The hand-written text files of the recipe, and how they are read.

Owns reading their lines; the head of each file says what a line means.
"""

from pathlib import Path

_FOLDER = Path(__file__).parent


def read_lines(name: str) -> list[str]:
    """The lines of the file ``name``, without blank ones and without comments (``# ``)."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]
