"""The recipe that makes the embedded pair; see README.md beside this file.

Reads the hand-written text files in ``material/``; the head of each file defines its line format.
Large ones are compressed: run ``xz -d FILE`` before editing and ``xz -9e FILE`` afterwards.
"""

import lzma
from pathlib import Path

_MATERIAL = Path(__file__).parent / "material"


def read_lines(name: str) -> list[str]:
    """The lines of the file ``name``, without blank ones and without comments (``# ``)."""
    path = _MATERIAL / name
    if path.exists():
        text = path.read_text(encoding="utf-8")
    else:
        text = lzma.decompress(path.with_name(f"{name}.xz").read_bytes()).decode()
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]


def words(text: str) -> tuple[str, ...]:
    """The words of ``text``."""
    return tuple(text.split())
