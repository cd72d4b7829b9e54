"""Markdown to lines of the screen: what a model writes, parsed and streamed block by block.

Owns parsing and streaming (`Flow`); how each element looks stands in `elements.py`. Knows no
widgets. The text is cleaned, but hostile in its structure: HTML is shown as the text it is, links
are written out and lead nowhere, nesting without end is shown as source, and a block that grows
without end is continued in a new one, so that a fragment costs the same however long the answer
is.

Textual's own Markdown widget mounts several widgets for each block and lays the whole screen out
again at each fragment: ten times the processor time that this takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from app.interface.elements import Elements, Literal
from app.interface.look import Line, Look

LONGEST_BLOCK = 6_000
"""Characters after which a block is continued in a new one."""

DEEPEST = 18
"""Nesting at which a block is shown as its source; the parser would drop what lies at 20."""


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block: its tokens, its source, and whether it continues the one before."""

    tokens: Sequence[Token]
    source: str
    continued: bool = False


class Flow:
    """A growing Markdown text as lines. All blocks but the last are laid out once.

    Attributes:
        lines: the text so far.
        settled: how many of them will not change any more.
    """

    def __init__(self, look: Look, width: int) -> None:
        self.lines: list[Line] = []
        self._look = look
        self._width = width
        self.settled = 0
        self._tail = ""
        self._tail_continues = False

    def append_fragment(self, fragment: str) -> None:
        """Take the next fragment, cut anywhere."""
        self._tail += fragment
        del self.lines[self.settled :]
        blocks = parse(self._tail, continued=self._tail_continues)
        growing = _growing(blocks)
        for block in blocks[: len(blocks) - len(growing)]:
            self._add(block)
        self.settled = len(self.lines)
        for block in growing:
            self._add(block)
        if growing:
            self._tail = "".join(block.source for block in growing)
            self._tail_continues = growing[0].continued

    def _add(self, block: Block) -> None:
        lines = _trimmed(self._look.lines(_renderable(block, self._look), self._width))
        if lines and self.lines and not block.continued:
            self.lines.append([])
        self.lines.extend(lines)


def parse(source: str, *, continued: bool = False) -> list[Block]:
    """The top-level blocks of `source`, overlong ones in parts; together all that shows."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    groups = list(_grouped(_PARSER.parse(source)))
    starts = [group[0].map[0] if group[0].map else 0 for group in groups]
    blocks: list[Block] = []
    for group, (start, end) in zip(groups, pairwise([*starts, len(lines)]), strict=True):
        follows = continued and not blocks
        blocks.extend(_parts(Block(group, "".join(lines[start:end]), follows)))
    return blocks


def _growing(blocks: list[Block]) -> list[Block]:
    """The blocks that more text can change: the last, and one it may make a table's head."""
    may_rule = blocks and _TABLE_RULE.fullmatch(blocks[-1].source)
    return blocks[-2:] if may_rule else blocks[-1:]


def _grouped(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The tokens of each top-level block."""
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield group
            group = []


def _parts(block: Block) -> list[Block]:
    """`block` itself, or where it is overlong, what it is continued as."""
    head, rest = _cut(block)
    if not rest:
        return [block]
    return [*parse(head, continued=block.continued), *parse(rest, continued=True)]


def _cut(block: Block) -> tuple[str, str]:
    """The source up to the first break after `LONGEST_BLOCK`, and the rest, able to stand alone."""
    repeated = {"fence": 1, "table_open": 2}.get(block.tokens[0].type, 0)
    prefix = "".join(block.source.splitlines(keepends=True)[:repeated])
    if len(prefix) > LONGEST_BLOCK // 2:
        return block.source, ""
    a_break = _SPACE if block.tokens[0].type == "paragraph_open" else _NEWLINE
    found = a_break.search(block.source, LONGEST_BLOCK)
    if found is None or not block.source[found.end() :].strip():
        return block.source, ""
    return block.source[: found.end()], prefix + block.source[found.end() :]


def _renderable(block: Block, look: Look) -> Elements | Literal:
    if any(token.level >= DEEPEST for token in block.tokens):
        return Literal(block.source)
    return Elements(block.tokens, look)


def _trimmed(lines: list[Line]) -> list[Line]:
    """`lines` without the blank ones that Rich puts around lists."""
    shown = [index for index, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[shown[0] : shown[-1] + 1] if shown else []


def _written_out(state: StateCore) -> None:
    """Replace links and images by their text and address: nothing on the screen launches anything.

    Line breaks stay where the model wrote them.
    """
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = list(_plain(token.children))


def _plain(children: Sequence[Token]) -> Iterator[Token]:
    address, label = "", ""
    for child in children:
        if child.type == "link_open":
            address, label = str(child.attrs.get("href", "")), ""
        elif child.type == "link_close":
            if address and address not in (label, f"mailto:{label}"):
                yield _text(f" ({address})")
        elif child.type == "image":
            yield _text(f"[image: {child.content}] ({child.attrs.get('src', '')})")
        elif child.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        else:
            label += child.content
            yield child


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["strikethrough", "table"])
    # A definition shows nothing and changes blocks that are already laid out.
    parser.disable("reference")
    parser.core.ruler.push("written_out", _written_out)
    return parser


_TABLE_RULE = re.compile(r"[\s|:-]*")
_SPACE = re.compile(r"\s")
_NEWLINE = re.compile(r"\n")
_PARSER = _make_parser()
