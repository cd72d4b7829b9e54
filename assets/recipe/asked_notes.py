"""Notes with questions that they answer and questions that they only seem to answer.

What the cross-encoder learns from: ``material/asked_notes.txt``, written for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random

from assets.recipe import read_text
from datastores.errors import InputError

FILE = "asked_notes.txt"
END, COMMENT, NAME, ANSWERED, UNANSWERED = "---", "# ", "@ ", "+ ", "- "
WHOLE_PATH, HEADED, HEADING_MOVED, UNNAMED, JOINED = 0.3, 0.8, 0.5, 0.08, 0.04
"""Shares of passages that are called by their whole path; by their first heading too, which then
is left out of the text; by nothing; and that another note stands beside."""
MAX_BEFORE = 500
"""Characters of a note that stands before the one that a question is about."""
TITLES = ("Chat:", "Re:")
"""Beginnings of names that are no file's."""


@dataclass(frozen=True)
class AskedNote:
    """A note, with questions that it answers and questions that it does not."""

    name: str
    text: str
    answered: tuple[str, ...]
    unanswered: tuple[str, ...]

    @property
    def plain(self) -> str:
        """Name and text."""
        return f"{self.name}: {self.text}"


def read_notes() -> list[AskedNote]:
    """All notes of the material.

    Raises:
        InputError: a block is malformed.
    """
    return list(parse(read_text(FILE)))


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


def draw_passage(note: AskedNote, notes: Sequence[AskedNote], rng: Random) -> str:
    """`note` as retrieval may find it: called by its name and heading, or beside another."""
    called, text = _called(note, rng)
    if rng.random() < UNNAMED:
        called = ""
    if rng.random() < JOINED:
        other = rng.choice(notes).text
        before = rng.random() < 0.5
        text = f"{other[:MAX_BEFORE]}\n\n{text}" if before else f"{text}\n\n{other}"
    return called + text


def _called(note: AskedNote, rng: Random) -> tuple[str, str]:
    """What a passage of `note` is called, and its text."""
    name, text = note.name, note.text
    if not name.startswith(TITLES) and rng.random() >= WHOLE_PATH:
        name = PurePosixPath(name).stem
    heading, _, rest = text.partition("\n")
    if heading.startswith("#") and rng.random() < HEADED:
        name = f"{name}, {heading.lstrip('# ').strip()}"
        if rest.strip() and rng.random() < HEADING_MOVED:
            text = rest.strip()
    return f"{name}: ", text
