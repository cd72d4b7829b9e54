"""How each Markdown element looks: Rich's renderer with the elements the house draws otherwise.

Owns looks only. Tokens come from `markdown.py`, which has taken links and HTML out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markdown_it.token import Token
from rich import box, markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from app.interface.look import Look

NARROWEST = 8
"""Columns that nested quotes and lists leave for their text at least."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Source text, shown as it is."""

    source: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.source.rstrip(), overflow="fold")


class Heading(markdown.Heading):
    """Bold, in the accent colour, at the left whatever its level."""

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> Heading:
        heading = cls(token.tag)
        heading.look = _look(markdown)
        return heading

    look: Look

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize(self.look["heading"])
        yield self.text


class Code(markdown.CodeBlock):
    """A block of code on a ground of its own; long lines wrap, so that nothing is out of sight."""

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> Code:
        code = cls(token.info.partition(" ")[0] or "text", "")
        code.look = _look(markdown)
        return code

    look: Look

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        syntax = Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.look.code_theme,
            word_wrap=True,
            tab_size=4,
        )
        yield Padding(syntax, (0, 1), style=self.look["code"])


class Quote(markdown.BlockQuote):
    """A quote beside a thin rule."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=max(options.max_width - 2, NARROWEST))
        for line in console.render_lines(self.elements, inner, style=self.style, pad=False):
            yield Segment("▏ ", self.style)
            yield from line
            yield Segment.line()


class HorizontalRule(markdown.HorizontalRule):
    """A thin rule."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, style="markdown.hr")


class TableElement(markdown.TableElement):
    """A table ruled only under its head."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            border_style="markdown.table.border",
        )
        if self.header is not None and self.header.row is not None:
            for cell in self.header.row.cells:
                heading = cell.content.copy()
                heading.stylize("markdown.table.header")
                table.add_column(heading, justify=cell.justify, overflow="fold")
        for row in self.body.rows if self.body is not None else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class Elements(markdown.Markdown):
    """The renderable of parsed tokens."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": Heading,
        "fence": Code,
        "code_block": Code,
        "blockquote_open": Quote,
        "hr": HorizontalRule,
        "table_open": TableElement,
    }

    def __init__(self, tokens: Sequence[Token], look: Look) -> None:
        # Not Rich's own initialiser: it would set up a parser of its own for every block.
        self.look = look
        self.parsed = list(tokens)
        self.style = "none"
        self.hyperlinks = False
        self.justify = None
        self.code_theme = ""
        self.inline_code_lexer = None
        self.inline_code_theme = ""


def _look(owner: markdown.Markdown) -> Look:
    assert isinstance(owner, Elements)
    return owner.look
