"""Splits a text into chunks along its structure: headings, paragraphs, code blocks, pages.

Sizes are in characters. Every character except blank lines between chunks is in exactly one chunk,
so that a chunk can be found in its file by its line numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARACTERS = 1024
"""Size of a chunk: about 256 tokens of English, as in RaLMSpec (section 5.1)."""
MIN_SECTION_CHARACTERS = MAX_CHARACTERS // 2
"""Length of a chunk from which a heading begins a new one, so that short sections stay together."""
HEADING_SEPARATOR = " > "

HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"[ \t]*(```+|~~~+)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one text.

    Attributes:
        heading: the headings above its first line, outermost first; may be empty.
        first_line, last_line: its lines in the text, counted from 1.
    """

    heading: str
    first_line: int
    last_line: int
    content: str

    @property
    def digest(self) -> bytes:
        """SHA-256 of heading and content, which identifies the embedded text."""
        return hashlib.sha256(f"{self.heading}\0{self.content}".encode()).digest()


@dataclass(frozen=True, slots=True)
class Passage:
    """A stored chunk.

    Attributes:
        id: its id in the store, by which ties are ordered.
        text: key of its text in the library.
        part: number of the part of that text, from 0.
    """

    id: int
    text: bytes
    part: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive lines: a paragraph, a heading, a code block, or a piece of one."""

    first_line: int
    lines: tuple[str, ...]
    level: int = 0
    new_page: bool = False

    @property
    def length(self) -> int:
        return sum(len(line) for line in self.lines) + len(self.lines)


def split(text: str, max_characters: int = MAX_CHARACTERS) -> Iterator[Chunk]:
    """The chunks of `text` in order, each of at most `max_characters` characters.

    Blocks are packed greedily. A chunk ends where the next block does not fit, at a page break, and
    before a heading once it has `MIN_SECTION_CHARACTERS`. A block that is too long is split at line
    ends, a line that is too long anywhere.
    """
    path: list[tuple[int, str]] = []
    packed: list[_Block] = []
    heading = ""
    for block in _blocks(text, max_characters):
        length = _length(packed)
        full = _length([*packed, block]) > max_characters
        section = bool(block.level) and length >= min(MIN_SECTION_CHARACTERS, max_characters // 2)
        if packed and (full or section or block.new_page):
            yield _chunk(heading, packed)
            packed = []
        if block.level:
            path = [entry for entry in path if entry[0] < block.level]
            path.append((block.level, _title(block.lines[0])))
        if not packed:
            heading = HEADING_SEPARATOR.join(title for _, title in path)
        packed.append(block)
    if packed:
        yield _chunk(heading, packed)


def _length(blocks: list[_Block]) -> int:
    """Characters from the first block to the end of the last, including blank lines."""
    if not blocks:
        return 0
    last = blocks[-1]
    blank = last.first_line + len(last.lines) - blocks[0].first_line
    return sum(block.length for block in blocks) + blank - sum(len(b.lines) for b in blocks)


def _chunk(heading: str, blocks: list[_Block]) -> Chunk:
    lines: list[str] = []
    for block in blocks:
        gap = block.first_line - (blocks[0].first_line + len(lines)) if lines else 0
        lines += [""] * gap
        lines += block.lines
    first = blocks[0].first_line
    last = blocks[-1].first_line + len(blocks[-1].lines) - 1
    return Chunk(heading, first, last, "\n".join(lines))


def _title(line: str) -> str:
    found = HEADING.match(line)
    return found[2] if found else line.strip()


def _blocks(text: str, max_characters: int) -> Iterator[_Block]:
    """Paragraphs, headings and code blocks, none of them longer than `max_characters`."""
    block, fence = _BlockCutter(max_characters), ""
    for number, line in enumerate(_lines(text), start=1):
        if line.startswith("\f"):
            yield from block.end()
            block.new_page, fence, line = True, "", line[1:]
        marker = FENCE.match(line)
        heading = None if fence else HEADING.match(line)
        if not fence and (not line.strip() or heading):
            yield from block.end()
            if heading:
                yield from block.add(number, line, len(heading[1]))
                yield from block.end()
            continue
        yield from block.add(number, line)
        if marker and not fence:
            fence = marker[1]
        elif marker and marker[1].startswith(fence):
            fence = ""
            yield from block.end()
    yield from block.end()


def _lines(text: str) -> Iterator[str]:
    """The lines, one at a time: a list of all may take ten times the memory of the text."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


class _BlockCutter:
    """Collects the lines of a block, and yields them in pieces of limited size.

    Attributes:
        new_page: whether the next piece begins a page.
    """

    def __init__(self, max_characters: int) -> None:
        self.new_page = False
        self._max_characters = max_characters
        self._lines: list[str] = []
        self._first_line = self._length = self._level = 0

    def add(self, number: int, line: str, level: int = 0) -> Iterator[_Block]:
        """Add the line with this number; yields the lines before it if it does not fit."""
        for piece in _pieces(line, self._max_characters - 1):
            if self._length + len(piece) + 1 > self._max_characters:
                yield from self.end()
            if not self._lines and not piece:
                continue  # a blank line between two chunks is in neither
            if not self._lines:
                self._first_line, self._level = number, level
            self._lines.append(piece)
            self._length += len(piece) + 1
            if len(line) >= self._max_characters:
                # Pieces of one line stay separate: joined, they would gain line ends.
                yield from self.end()

    def end(self) -> Iterator[_Block]:
        """Yield the remaining lines of the block."""
        if self._lines:
            yield _Block(self._first_line, tuple(self._lines), self._level, self.new_page)
            self._lines, self._length, self.new_page = [], 0, False


def _pieces(line: str, size: int) -> Iterator[str]:
    """`line` in pieces of at most `size` characters; an empty line is one piece."""
    if not line:
        yield line
    for start in range(0, len(line), size):
        yield line[start : start + size]
