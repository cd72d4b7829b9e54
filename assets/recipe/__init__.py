"""The recipe that makes the embedded pair; see README.md beside this file.

Owns how its hand-written text files in ``material/`` are read; the head of each file says what a
line means. Large ones are compressed: ``xz -d FILE`` to edit one, ``xz -9e FILE`` afterwards.
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
