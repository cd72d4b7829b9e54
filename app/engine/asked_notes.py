"""Notes with questions that they answer and questions that they only seem to answer.

``assets/asked-notes.txt.xz``, written for this: 2,289 notes with 25,695 questions. Blocks are
separated by a line ``---``: ``@ `` and the note's name, its text, then lines with a question each,
after ``+ `` if the note answers it and after ``- `` if not.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from datastores.errors import InputError

FILE = "asked-notes.txt.xz"
END, COMMENT, NAME, ANSWERED, UNANSWERED = "---", "# ", "@ ", "+ ", "- "


@dataclass(frozen=True, slots=True)
class AskedNote:
    """A note, with questions that it answers and questions that it does not."""

    name: str
    text: str
    answered: tuple[str, ...]
    unanswered: tuple[str, ...]

    @property
    def excerpt(self) -> str:
        """As passages are shown to models: below what they are from."""
        return f"{self.name}\n{self.text}"


def read_notes() -> list[AskedNote]:
    """All of them, in the order of the file.

    Raises:
        InputError: a block is malformed.
    """
    return list(parse(lzma.decompress((files("assets") / FILE).read_bytes()).decode()))


def parse(content: str) -> Iterator[AskedNote]:
    """The notes of a file with this `content`. Blocks that are comments (``# ``) are left out.

    Raises:
        InputError: a block is malformed.
    """
    block: list[str] = []
    begin = 1
    for number, line in enumerate([*content.splitlines(), END], 1):
        if line.strip() != END:
            block.append(line)
            continue
        if any(line.strip() and not line.startswith(COMMENT) for line in block):
            yield _note(block, begin)
        block, begin = [], number + 1


def _note(block: Sequence[str], begin: int) -> AskedNote:
    """The note in the lines `block`, the first of which is line `begin` of the file."""
    lines = [(number, line) for number, line in enumerate(block, begin) if line.strip()]
    (first, head), *rest = lines
    if not head.startswith(NAME):
        raise InputError(f"{FILE}, line {first}: not '{NAME}name': {head[:60]}")
    asked: dict[str, list[str]] = {ANSWERED: [], UNANSWERED: []}
    last = first
    for number, line in rest:
        if line[:2] in asked:
            asked[line[:2]].append(line[2:].strip())
        elif any(asked.values()):
            raise InputError(f"{FILE}, line {number}: text after questions: {line[:60]}")
        else:
            last = number
    text = "\n".join(block[first + 1 - begin : last + 1 - begin]).strip()
    if not text or not all(asked.values()):
        raise InputError(
            f"{FILE}, line {first}: a note needs text, questions with '+' and with '-'"
        )
    name = head.removeprefix(NAME).strip()
    return AskedNote(name, text, tuple(asked[ANSWERED]), tuple(asked[UNANSWERED]))
