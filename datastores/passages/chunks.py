"""Cutting a text into chunks along its structure: headings, paragraphs, code blocks, pages.

Owns where chunks begin and end. Refuses to know tokenizers (sizes are in characters), stores and
ranking. Every character but blank lines between chunks is in exactly one chunk, so that a chunk can
be found again in its file by its line numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARACTERS = 1024
"""Of one chunk: about 256 tokens of English, the chunk size of RaLMSpec (section 5.1)."""
MIN_SECTION_CHARACTERS = MAX_CHARACTERS // 2
"""A heading begins a new chunk once the current one is this long: short sections stay together."""
HEADING_SEPARATOR = " > "

HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"[ \t]*(```+|~~~+)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of one text.

    Attributes:
        heading: the headings above its first line, outermost first; may be empty.
        first_line, last_line: its lines in the text, counted from 1.
        content: the text itself.
    """

    heading: str
    first_line: int
    last_line: int
    content: str

    @property
    def digest(self) -> bytes:
        """SHA-256 of heading and content: the identity of what is embedded."""
        return hashlib.sha256(f"{self.heading}\0{self.content}".encode()).digest()


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that belong together: a paragraph, a heading, a code block, or a piece of one."""

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
    before a heading once it has `MIN_SECTION_CHARACTERS`. A block that is too long by itself is cut
    at line ends, a line that is too long anywhere.
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
    """Characters from the first block to the end of the last, blank lines in between included."""
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
    for first_line, lines, level, new_page in _structure(text):
        yield from _cut(_Block(first_line, lines, level, new_page), max_characters)


def _structure(text: str) -> Iterator[tuple[int, tuple[str, ...], int, bool]]:
    """First line, lines, heading level and page break of every block, whatever its length."""
    pending: list[str] = []
    start, fence, new_page = 1, "", False

    def flush() -> Iterator[tuple[int, tuple[str, ...], int, bool]]:
        nonlocal new_page
        if pending:
            yield start, tuple(pending), 0, new_page
            pending.clear()
            new_page = False

    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("\f"):
            yield from flush()
            new_page, fence, line = True, "", line[1:]
        marker = FENCE.match(line)
        heading = None if fence else HEADING.match(line)
        if not fence and (not line.strip() or heading):
            yield from flush()
            if heading:
                yield number, (line,), len(heading[1]), new_page
                new_page = False
            continue
        if not pending:
            start = number
        pending.append(line)
        if marker and not fence:
            fence = marker[1]
        elif marker and marker[1].startswith(fence):
            fence = ""
            yield from flush()
    yield from flush()


def _cut(block: _Block, max_characters: int) -> Iterator[_Block]:
    """`block` in pieces that fit, cut between lines, and within a line that is too long alone."""
    if block.length <= max_characters:
        yield block
        return
    lines: list[str] = []
    number, length, new_page = block.first_line, 0, block.new_page
    for offset, line in enumerate(block.lines):
        for piece in _pieces(line, max_characters - 1):
            if lines and length + len(piece) + 1 > max_characters:
                yield _Block(number, tuple(lines), block.level, new_page)
                lines, length, new_page = [], 0, False
            if not lines and not piece:
                continue  # a blank line between two chunks is in neither
            if not lines:
                number = block.first_line + offset
            lines.append(piece)
            length += len(piece) + 1
            if len(line) >= max_characters:
                # Pieces of one line are blocks of their own: joined, they would gain line ends.
                yield _Block(number, tuple(lines), block.level, new_page)
                lines, length, new_page = [], 0, False
    if lines:
        yield _Block(number, tuple(lines), block.level, new_page)


def _pieces(line: str, size: int) -> Iterator[str]:
    """`line` in pieces of at most `size` characters; an empty line is one piece."""
    if not line:
        yield line
    for start in range(0, len(line), size):
        yield line[start : start + size]
