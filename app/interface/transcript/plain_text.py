"""The text behind the rows, which is selected and copied without its layout.

A text is what wraps as one piece: a paragraph, a block of code, a cell of a table. Before Rich lays
it out, `TextCollector` marks it in the metadata of its style; `spans_of` finds the marks and says
which cells show which characters. Unmarked cells (bars, margins, rules) cannot be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

TAB_SIZE = 4

_TEXT = "text"
_MARKER = "marker"
"""Keys of style metadata: index of a text, and whether a cell shows its list item's marker."""

_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]+|\s+")


@dataclass(frozen=True, slots=True)
class PlainText:
    """One text.

    Attributes:
        shown: the text as laid out, tabs expanded, after the marker of its list item.
        raw: the text as written, after the same marker.
        before: separator from the previous text.
        marker: length of the marker.
    """

    shown: str
    raw: str
    before: str = "\n\n"
    marker: int = 0

    def cut(self, start: int, end: int) -> str:
        """The part of `raw` for the characters of `shown` from `start` to `end`."""
        if self.shown == self.raw:
            return self.raw[start:end]
        return self.raw[self._raw_index(start) : self._raw_index(end)]

    def word_at(self, index: int) -> tuple[int, int]:
        """Start and end of the word, spaces or punctuation at `index`."""
        for found in _WORD.finditer(self.shown, self.marker):
            if index < found.end():
                return found.span()
        return len(self.shown), len(self.shown)

    def _raw_index(self, shown: int) -> int:
        """The index in `raw` of the character at `shown`; a tab counts as a whole."""
        column, at = 0, 0
        for index, character in enumerate(self.raw):
            if at >= shown:
                return index
            tab = TAB_SIZE - column % TAB_SIZE if character == "\t" else 0
            at += tab or 1
            column = (
                0 if character == "\n" else column + (tab or get_character_cell_size(character))
            )
        return len(self.raw)


NO_TEXT = PlainText("", "")


@dataclass(frozen=True, slots=True)
class Span:
    """Adjacent cells that show adjacent characters of one text.

    Attributes:
        cell: the first cell, counted from the start of the line.
        text: index of the text in its entry.
        start: index of the first character in the text.
        marker: whether it is the marker of a list item, which is selected as a whole.
    """

    cell: int
    characters: str
    text: int
    start: int
    marker: bool = False

    @property
    def end_cell(self) -> int:
        """The cell after the last one."""
        return self.cell + cell_len(self.characters)

    @property
    def end(self) -> int:
        """The index after the last character."""
        return self.start if self.marker else self.start + len(self.characters)

    def index_at(self, cell: int) -> int:
        """The index of the character that `cell` shows."""
        if self.marker:
            return self.start
        ends = accumulate(map(get_character_cell_size, self.characters), initial=self.cell)
        return self.start + sum(end <= cell for end in ends) - 1

    def cells(self, start: int, end: int) -> tuple[int, int]:
        """The cells of the characters from `start` to `end` of the text."""
        if self.marker:
            return (self.cell, self.end_cell) if start <= self.start < end else (0, 0)
        first, last = max(0, start - self.start), max(0, end - self.start)
        before, selected = self.characters[:first], self.characters[first:last]
        left = self.cell + cell_len(before)
        return left, left + cell_len(selected)


@lru_cache(4096)
def mark_of(text: int, *, marker: bool = False) -> Style:
    """The style that marks cells as showing the text with this index."""
    return Style.from_meta({_TEXT: text, _MARKER: marker})


class TextCollector:
    """Collects the texts of one block in the order in which they are laid out."""

    def __init__(self, first: int = 0, before: str = "\n\n") -> None:
        """`first` is the index of the first text in its entry, `before` its separator."""
        self.texts: list[PlainText] = []
        self._first = first
        self._before = before
        self._marker = ""
        self._indent = 0

    def add(self, text: Text) -> Text:
        """Add and mark `text`; returns it with its tabs expanded."""
        marker, raw = self._marker, text.plain
        text.expand_tabs(TAB_SIZE)
        text.stylize(mark_of(self._index))
        self.texts.append(PlainText(marker + text.plain, marker + raw, self._before, len(marker)))
        self._marker, self._before = "", "\n\n"
        return text

    def separate(self, before: str) -> None:
        """Set the separator of the next text, unless it is the block's first."""
        if self.texts:
            self._before = before

    @contextmanager
    def item(self, marker: str) -> Iterator[Style]:
        """Lay out a list item whose first text begins with `marker`; yields the marker's style."""
        self.separate("\n")
        self._marker = (self._marker or " " * self._indent) + marker
        self._indent += len(marker)
        yield mark_of(self._index, marker=True)
        self._indent -= len(marker)
        self._marker = ""

    @property
    def _index(self) -> int:
        return self._first + len(self.texts)


def spans_of(
    lines: Iterable[Sequence[Segment]], texts: Sequence[PlainText], first: int = 0
) -> list[tuple[Span, ...]]:
    """The spans of each line; `first` is the index of the first of `texts`."""
    reached = {first + index: text.marker for index, text in enumerate(texts)}
    found = []
    for line in lines:
        cell, spans = 0, []
        for segment in line:
            index, marker = _marked(segment)
            if index in reached and marker:
                spans.append(Span(cell, segment.text, index, 0, marker=True))
            elif index in reached:
                start = _find(segment.text, texts[index - first].shown, reached[index])
                spans.append(Span(cell, segment.text, index, start))
                reached[index] = start + len(segment.text)
            cell += segment.cell_length
        found.append(tuple(spans))
    return found


def without_marks(line: Sequence[Segment]) -> list[Segment]:
    """`line` with the same look but without metadata and links in its styles.

    The spaces that fill a line are joined with its text again, which the mark had split off.
    """
    parts: list[Segment] = []
    for part in line:
        look = _look(part.style) if part.style else part.style
        fills = look is not None and look.bgcolor is None and not part.text.strip()
        if parts and fills and parts[-1].style == look and _marked(part)[0] < 0:
            parts[-1] = Segment(parts[-1].text + part.text, look)
        else:
            parts.append(Segment(part.text, look))
    return parts


@lru_cache(4096)
def _look(style: Style) -> Style:
    return style.clear_meta_and_links() if style.meta else style


def _marked(segment: Segment) -> tuple[int, bool]:
    """The index of the text that `segment` shows (-1 for none), and whether it is the marker."""
    meta = segment.style.meta if segment.style is not None else {}
    return meta.get(_TEXT, -1), meta.get(_MARKER, False)


def _find(characters: str, text: str, start: int) -> int:
    """The index of `characters` in `text` from `start`: wrapping drops only white space."""
    at = start
    while not text.startswith(characters, at):
        if at >= len(text) or not text[at].isspace():
            return start
        at += 1
    return at
