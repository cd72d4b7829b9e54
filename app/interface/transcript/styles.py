"""The styles of the transcript, from the component classes of `transcript.tcss`."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme
from rich.theme import Theme
from textual.color import Color

from app.interface.draft_origins import ORIGINS, OriginLabel

Line = list[Segment]
"""One line of the screen, without its line break."""

TINT_STRENGTH = 0.28
"""How strongly the colour of its origin tints the background of a word."""

KINDS = frozenset(
    {
        "dim",
        "accent",
        "warning",
        "question",
        "question-bar",
        "heading",
        "code",
        "code-inline",
        "code-keyword",
        "code-string",
        "code-comment",
        "code-name",
        "quote",
        "rule",
    }
)
"""Kinds of text, each with a component class `transcript--KIND`."""


@dataclass(frozen=True)
class Styles:
    """Styles by kind of text for a dark or a light background."""

    by_kind: dict[str, Style]
    background: Color
    dark: bool

    def __getitem__(self, kind: str) -> Style:
        return self.by_kind[kind]

    def lines(self, renderable: RenderableType, width: int) -> list[Line]:
        """Lay `renderable` out in `width` columns."""
        console = self._console
        options = console.options.update(width=max(width, 1), height=None)
        return console.render_lines(renderable, options, pad=False)

    @cached_property
    def origin_styles(self) -> dict[int, tuple[Style, Style]]:
        """For each origin bit, the style of its letter and of its words."""
        return {bit: self._origin_styles(origin) for bit, origin in ORIGINS.items()}

    @cached_property
    def code_theme(self) -> ANSISyntaxTheme:
        """The colours of source code."""
        return ANSISyntaxTheme(self._code_styles())

    @cached_property
    def _console(self) -> Console:
        """The console that Rich needs for layout; nothing is printed on it."""
        return Console(
            file=io.StringIO(),
            color_system="truecolor",
            theme=Theme(self._markdown_styles()),
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def _origin_styles(self, origin: OriginLabel) -> tuple[Style, Style]:
        color = Color.parse(origin.color(dark=self.dark))
        background = self.background.blend(color, TINT_STRENGTH).rich_color
        letter = Style(color=color.rich_color, bgcolor=background, bold=True)
        return letter, Style(bgcolor=background)

    def _markdown_styles(self) -> dict[str, Style]:
        return {
            "markdown.paragraph": Style(),
            "markdown.em": Style(italic=True),
            "markdown.strong": Style(bold=True),
            "markdown.s": Style(strike=True),
            "markdown.code": self["code-inline"],
            "markdown.block_quote": self["quote"],
            "markdown.item": Style(),
            "markdown.item.bullet": self["accent"],
            "markdown.item.number": self["accent"],
            "markdown.table.border": self["rule"],
            "markdown.table.header": Style(bold=True),
            "markdown.hr": self["rule"],
        }

    def _code_styles(self) -> dict[tuple[str, ...], Style]:
        return {
            Token: self["code"],
            Comment: self["code-comment"],
            Keyword: self["code-keyword"],
            Operator.Word: self["code-keyword"],
            String: self["code-string"],
            Number: self["code-string"],
            Name.Function: self["code-name"],
            Name.Class: self["code-name"],
            Name.Builtin: self["code-name"],
            Name.Tag: self["code-name"],
        }


def make_styles(style_of: Callable[[str], Style], background: Color, *, dark: bool) -> Styles:
    """The styles of all kinds of text; `style_of` returns that of a component class."""
    return Styles({kind: style_of(f"transcript--{kind}") for kind in KINDS}, background, dark)
