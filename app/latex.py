"""A markdown-it plugin that keeps LaTeX as it was written.

Markdown removes backslashes, underscores and asterisks from formulas. This plugin keeps the text
between `\\(` and `\\)`, `\\[` and `\\]`, `$` signs or `\\begin{…}` and `\\end{…}` with its
delimiters, and lets a backslash escape only characters that mean something in Markdown. A formula
of several lines is a block, a `latex` token, so that its lines that begin with `-` or `=` become
neither lists nor headings. It ends at a blank line, as in LaTeX, so that later text cannot change
it.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.escape import escape

LATEX = "latex"
"""Token type of a formula of several lines."""

MAX_INLINE_CHARS = 1_000
"""Maximum length of an inline formula; it bounds the search for the end of each one."""

_ESCAPABLE = frozenset("\\`*_[]()#+-.!|<>~$&\n")
"""Characters that mean something in Markdown; LaTeX's spaces, accents and braces do not."""

_OPENING = re.compile(r"\\\(|\\\[|\$\$|\$(?=\S)|\\begin\{([a-zA-Z]+\*?)\}")
_BLOCK_OPENING = re.compile(r"\\\[|\$\$|\\begin\{([a-zA-Z]+\*?)\}")
_CLOSING = {
    "\\(": re.compile(r"\\\)"),
    "\\[": re.compile(r"\\\]"),
    "$$": re.compile(r"\$\$"),
    # As in Pandoc, `$5 and $10` is not a formula.
    "$": re.compile(r"(?<=[^\s\\])\$(?!\d)"),
}


def keep_latex(parser: MarkdownIt) -> None:
    """Install the plugin in `parser`."""
    interrupted = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", LATEX, _block, {"alt": interrupted})
    parser.inline.ruler.before("escape", LATEX, _inline)
    parser.inline.ruler.at("escape", _escape)


def _closing(opening: re.Match[str]) -> re.Pattern[str]:
    name = opening.groups()[0]
    return re.compile(re.escape(f"\\end{{{name}}}")) if name else _CLOSING[opening[0]]


def _inline(state: StateInline, silent: bool) -> bool:
    opening = _OPENING.match(state.src, state.pos)
    if opening is None:
        return False
    last = min(state.posMax, opening.end() + MAX_INLINE_CHARS)
    closing = _closing(opening).search(state.src, opening.end(), last)
    if closing is None:
        return False
    if not silent:
        state.push("text", "", 0).content = state.src[state.pos : closing.end()]
    state.pos = closing.end()
    return True


def _escape(state: StateInline, silent: bool) -> bool:
    following = state.src[state.pos + 1 : state.pos + 2]
    return following in _ESCAPABLE and escape(state, silent)


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    opening = _BLOCK_OPENING.match(first)
    # A last line that is still growing may turn out to be text that begins with a formula.
    if opening is None or state.eMarks[start] == len(state.src):
        return False
    closing = _closing(opening)
    if closing.search(first, opening.end()):
        return False
    if not silent:
        state.line = _last_line(state, closing, start, end) + 1
        token = state.push(LATEX, "", 0)
        token.map = [start, state.line]
        token.content = state.getLines(start, state.line, state.blkIndent, False).rstrip()
    return True


def _last_line(state: StateBlock, closing: re.Pattern[str], start: int, end: int) -> int:
    """The last line of the formula that begins at line `start`."""
    for line in range(start + 1, end):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return line - 1
        if closing.search(_line(state, line)):
            return line
    return end - 1


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
