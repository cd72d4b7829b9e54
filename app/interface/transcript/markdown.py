"""Markdown as lines of the screen: parsed, laid out by Rich, and streamed block by block.

The text is sanitised but its structure may be hostile: HTML is shown as text, links are written out
and not clickable, deep nesting is shown as source, and an endless block is continued in a new one,
so that a fragment costs the same however long the answer is.

Textual's Markdown widget takes ten times the processor time: it mounts several widgets for each
block, and lays the whole screen out again at each fragment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich import box, markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from app.interface.transcript.plain_text import PlainText, Span, TextCollector, spans_of
from app.interface.transcript.styles import Line, Styles
from app.latex import LATEX, keep_latex

MIN_NESTED_COLUMNS = 8
"""Minimum width of text in nested quotes."""


@dataclass(frozen=True, slots=True)
class LiteralText:
    """Source text, shown verbatim."""

    source: str
    texts: TextCollector

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.texts.add(Text(self.source.rstrip(), overflow="fold"))


class OwnedElement(markdown.MarkdownElement):
    """An element that adds its texts to those of the `Elements` that it belongs to."""

    owner: Elements

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> Self:
        element = super().create(markdown, token)
        assert isinstance(element, cls)
        assert isinstance(markdown, Elements)
        element.owner = markdown
        return element


class Paragraph(OwnedElement, markdown.Paragraph):
    """A paragraph whose text can be selected."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.owner.texts.add(self.text)


class ListItem(OwnedElement, markdown.ListItem):
    """An item whose marker is copied as Markdown writes it."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._marked(super().render_bullet(console, options), "- ")

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        lines = super().render_number(console, options, number, last_number)
        yield from self._marked(lines, f"{number}. ")

    def _marked(self, lines: RenderResult, marker: str) -> RenderResult:
        with self.owner.texts.item(marker) as style:
            for index, part in enumerate(lines):
                if index == 0 and isinstance(part, Segment):
                    part = Segment(part.text, (part.style or Style.null()) + style)
                yield part


class Heading(OwnedElement, markdown.Heading):
    """A heading, left-aligned at every level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize(self.owner.styles["heading"])
        yield self.owner.texts.add(self.text)


class Code(OwnedElement, markdown.CodeBlock):
    """A block of code on its own background; long lines wrap."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        styles, source = self.owner.styles, str(self.text).rstrip()
        # A tab size of 0 keeps the tabs, so that they are copied.
        syntax = Syntax(
            source, self.lexer_name, theme=styles.code_theme, word_wrap=True, tab_size=0
        )
        code = syntax.highlight(source)
        code.right_crop(len(code) - len(source))
        yield Padding(self.owner.texts.add(code), (0, 1), style=styles["code"])


class Quote(markdown.BlockQuote):
    """A quote beside a thin rule."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=max(options.max_width - 2, MIN_NESTED_COLUMNS))
        for line in console.render_lines(self.elements, inner, style=self.style, pad=False):
            yield Segment("▏ ", self.style)
            yield from line
            yield Segment.line()


class HorizontalRule(markdown.HorizontalRule):
    """A thin rule."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, style="markdown.hr")


class TableElement(OwnedElement, markdown.TableElement):
    """A table with a rule only below its header."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            border_style="markdown.table.border",
        )
        if self.header is not None and self.header.row is not None:
            for cell, heading in zip(
                self.header.row.cells, self._texts(self.header.row), strict=True
            ):
                heading.stylize("markdown.table.header")
                table.add_column(heading, justify=cell.justify, overflow="fold")
        for row in self.body.rows if self.body is not None else ():
            table.add_row(*self._texts(row))
        yield table

    def _texts(self, row: markdown.TableRowElement) -> list[Text]:
        """The texts of the cells, which are copied with tabs between them."""
        collector = self.owner.texts
        texts = []
        for index, cell in enumerate(row.cells):
            collector.separate("\t" if index else "\n")
            texts.append(collector.add(cell.content.copy()))
        return texts


class Elements(markdown.Markdown):
    """Renders parsed tokens, and collects their texts as they are laid out."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "paragraph_open": Paragraph,
        LATEX: Paragraph,
        "heading_open": Heading,
        "list_item_open": ListItem,
        "fence": Code,
        "code_block": Code,
        "blockquote_open": Quote,
        "hr": HorizontalRule,
        "table_open": TableElement,
    }

    def __init__(self, tokens: Sequence[Token], styles: Styles, texts: TextCollector) -> None:
        # Not Rich's own initialiser, which creates a parser for every block.
        self.styles = styles
        self.texts = texts
        self.parsed = list(tokens)
        self.style = "none"
        self.hyperlinks = False
        self.justify = None
        self.code_theme = ""
        self.inline_code_lexer = None
        self.inline_code_theme = ""


MAX_BLOCK_CHARS = 6_000
"""A longer block is continued in a new one."""

MAX_PARSED_CHARS = 2 * MAX_BLOCK_CHARS
"""Characters parsed at a time: dividing an overlong block parses its rest again for each part."""

MAX_NESTING = 18
"""A block nested this deep is shown as source; the parser drops what is nested 20 deep."""


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block: its tokens, its source, and whether it continues the previous one."""

    tokens: Sequence[Token]
    source: str
    continued: bool = False

    @property
    def before(self) -> str:
        """Separator from the block that it continues: paragraphs are cut at a space."""
        return " " if self.tokens[0].type == "paragraph_open" else "\n"


class MarkdownStream:
    """A growing Markdown text as lines; all blocks but the last are laid out once.

    Attributes:
        spans: those of each of `lines`.
        texts: what the spans refer to; the first one has the index `first_text`.
        stable_lines: number of lines that can no longer change.
    """

    def __init__(self, styles: Styles, width: int, first_text: int = 0) -> None:
        self.lines: list[Line] = []
        self.spans: list[tuple[Span, ...]] = []
        self.texts: list[PlainText] = []
        self._styles = styles
        self._width = width
        self._first_text = first_text
        self._stable_texts = 0
        self.stable_lines = 0
        self._tail = ""
        self._tail_continues = False

    def append_fragment(self, fragment: str) -> None:
        """Append the next fragment, which may end anywhere."""
        del self.lines[self.stable_lines :], self.spans[self.stable_lines :]
        del self.texts[self._stable_texts :]
        unstable: list[Block] = []
        # In parts: a long text then costs no more than the same text streamed.
        for start in range(0, max(1, len(fragment)), MAX_PARSED_CHARS):
            unstable = self._continue(fragment[start : start + MAX_PARSED_CHARS])
        for block in unstable:
            self._add(block)

    def _continue(self, fragment: str) -> list[Block]:
        """Lay out the blocks that `fragment` completes; returns the rest."""
        self._tail += fragment
        blocks = parse(self._tail, continued=self._tail_continues)
        unstable = _unstable(blocks)
        for block in blocks[: len(blocks) - len(unstable)]:
            self._add(block)
        self.stable_lines, self._stable_texts = len(self.lines), len(self.texts)
        if unstable:
            self._tail = "".join(block.source for block in unstable)
            self._tail_continues = unstable[0].continued
        return unstable

    def _add(self, block: Block) -> None:
        first = self._first_text + len(self.texts)
        texts = TextCollector(first, block.before if block.continued else "\n\n")
        renderable = _renderable(block, self._styles, texts)
        lines = _trimmed(self._styles.lines(renderable, self._width))
        if lines and self.lines and not block.continued:
            self.lines.append([])
            self.spans.append(())
        self.lines.extend(lines)
        self.spans.extend(spans_of(lines, texts.texts, first))
        self.texts.extend(texts.texts)


def parse(source: str, *, continued: bool = False) -> list[Block]:
    """The top-level blocks of `source`, overlong ones divided."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    groups = list(_grouped(_PARSER.parse(source)))
    starts = [group[0].map[0] if group[0].map else 0 for group in groups]
    blocks: list[Block] = []
    for group, (start, end) in zip(groups, pairwise([*starts, len(lines)]), strict=True):
        continues = continued and not blocks
        blocks.extend(_divided(Block(group, "".join(lines[start:end]), continues)))
    return blocks


def _unstable(blocks: list[Block]) -> list[Block]:
    """The blocks that more text can change: the last, and the one that it may join.

    It may turn out to be the rule below a table's header, or no fence but a part of the paragraph.
    """
    may_join = blocks and _JOINING.fullmatch(blocks[-1].source)
    return blocks[-2:] if may_join else blocks[-1:]


def _grouped(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield group
            group = []


def _divided(block: Block) -> list[Block]:
    """`block`, or the blocks that an overlong one is divided into."""
    head, rest = _cut(block)
    if not rest:
        return [block]
    return [*parse(head, continued=block.continued), *parse(rest, continued=True)]


def _cut(block: Block) -> tuple[str, str]:
    """The source up to the first break after `MAX_BLOCK_CHARS`, and the rest as its own block."""
    repeated = {"fence": 1, "table_open": 2}.get(block.tokens[0].type, 0)
    prefix = "".join(block.source.splitlines(keepends=True)[:repeated])
    if len(prefix) > MAX_BLOCK_CHARS // 2:
        return block.source, ""
    boundary = _SPACE if block.tokens[0].type == "paragraph_open" else _NEWLINE
    found = boundary.search(block.source, MAX_BLOCK_CHARS)
    if found is None or not block.source[found.end() :].strip():
        return block.source, ""
    return block.source[: found.end()], prefix + block.source[found.end() :]


def _renderable(block: Block, styles: Styles, texts: TextCollector) -> Elements | LiteralText:
    if any(token.level >= MAX_NESTING for token in block.tokens):
        return LiteralText(block.source, texts)
    return Elements(block.tokens, styles, texts)


def _trimmed(lines: list[Line]) -> list[Line]:
    """`lines` without the blank lines that Rich adds around lists."""
    shown = [index for index, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[shown[0] : shown[-1] + 1] if shown else []


def _write_out_links(state: StateCore) -> None:
    """Replace links and images by their text and address, and keep the model's line breaks."""
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
    # A link definition is invisible, and would change blocks that are already laid out.
    parser.disable("reference")
    parser.core.ruler.push("write_out_links", _write_out_links)
    keep_latex(parser)
    return parser


_JOINING = re.compile(r"[\s|:-]*|\s*```[^\n]*")
_SPACE = re.compile(r"\s")
_NEWLINE = re.compile(r"\n")
_PARSER = _make_parser()
