"""Renders an answer as Markdown on a terminal while it is being generated.

Finished blocks are printed once; only the unfinished block is redrawn in place, and never more of
it than fits on the screen. So the scrollback holds every line exactly once.
"""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, Paragraph
from rich.segment import Segment
from rich.syntax import Syntax

from app.latex import LATEX, keep_latex
from app.sanitise import StreamCleaner

REDRAW_INTERVAL_S = 0.1
"""Minimum seconds between redraws of the unfinished block."""
REDRAW_SHARE = 0.1
"""Maximum share of the time spent on redrawing: a long code block is redrawn less often."""
NOTHING = Group()
MAX_NESTING = 100
"""The parser drops text that is nested more deeply; its default is 20."""


class AnswerCode(CodeBlock):
    """A code block without margins or background, so that copying yields just the code."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, background_color="default"
        )


class AnswerHeading(Heading):
    """A heading at the left margin."""

    LEVEL_ALIGN: ClassVar = {}


class AnswerMarkdown(Markdown):
    """Markdown that shows HTML as text, and links with their addresses."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": AnswerHeading,
        "fence": AnswerCode,
        "code_block": AnswerCode,
        LATEX: Paragraph,
    }

    def __init__(self, source: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = _parser().parse(source)


class MarkdownPrinter:
    """Prints a growing Markdown text to `console` or standard output; `close` must follow."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._tail = ""
        self._cleaner = StreamCleaner()
        self._printed = False
        self._next_redraw = 0.0

    def write(self, text: str) -> None:
        """Append `text`, which may end anywhere."""
        self._tail += self._cleaner.clean(text)
        if "\n" in text:
            self._print_finished()
        if monotonic() >= self._next_redraw:
            self._redraw()

    def close(self) -> None:
        """Print the last block."""
        tail, self._tail = self._tail, ""
        self._live.update(NOTHING, refresh=True)
        self._live.stop()
        self._print(tail)

    def _print_finished(self) -> None:
        """Print all blocks but the last, as parsed from the whole lines."""
        lines = self._tail.split("\n")
        start = _last_block("\n".join(lines[:-1]))
        if start:
            self._tail = "\n".join(lines[start:])
            self._live.update(NOTHING, refresh=True)
            self._print("\n".join(lines[:start]))

    def _print(self, source: str) -> None:
        if source.strip():
            if self._printed:
                self._console.print()
            self._console.print(AnswerMarkdown(source))
            self._printed = True

    def _redraw(self) -> None:
        begun = monotonic()
        self._live.start()
        self._live.update(LastLines(self._tail, self._printed), refresh=True)
        taken = monotonic() - begun
        self._next_redraw = monotonic() + max(REDRAW_INTERVAL_S, taken / REDRAW_SHARE)


class LastLines:
    """The end of a block, as much as fits on the screen, with an optional blank line before it."""

    def __init__(self, source: str, blank_first: bool) -> None:
        self._source = source
        self._blank_first = blank_first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(AnswerMarkdown(self._source), options, pad=False)
        if self._blank_first:
            lines.insert(0, [])
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


def _parser() -> MarkdownIt:
    options = {"html": False, "maxNesting": MAX_NESTING}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    keep_latex(parser)
    return parser


def _last_block(source: str) -> int:
    """The first line of the last top-level block of `source`; 0 if there is only one block."""
    starts = [token.map[0] for token in _parser().parse(source) if token.map and not token.level]
    return starts[-1] if starts else 0
