"""The text behind the rows: what is selected with the mouse, and copied, without its layout.

Owns which cells of a laid-out line show which characters of which text. A text is what wraps as one
piece: a paragraph, a block of code, a cell of a table. Before Rich lays it out, `TextCollector`
marks it in the metadata of its style; `spans_of` finds the marks in the lines. Everything unmarked
(bars, margins, rules, versions) belongs to the layout and cannot be copied. Knows no widgets.
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
"""Keys of the metadata: the index of a text, and whether it is the marker of its list item."""

_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]+|\s+")


@dataclass(frozen=True, slots=True)
class PlainText:
    """One text.

    Attributes:
        shown: as it is laid out, tabs expanded, behind the marker of its list item.
        raw: as it was written, behind the same marker.
        before: what separates it from the previous text.
        marker: how many characters the marker has.
    """

    shown: str
    raw: str
    before: str = "\n\n"
    marker: int = 0

    def cut(self, start: int, end: int) -> str:
        """What was written, for the characters of `shown` from `start` to `end`."""
        if self.shown == self.raw:
            return self.raw[start:end]
        return self.raw[self._raw_index(start) : self._raw_index(end)]

    def word_at(self, index: int) -> tuple[int, int]:
        """Start and end of the word, or of the spaces or signs, at `index`."""
        for found in _WORD.finditer(self.shown, self.marker):
            if index < found.end():
                return found.span()
        return len(self.shown), len(self.shown)

    def _raw_index(self, shown: int) -> int:
        """The index in `raw` of the character at `shown`; a tab is taken as a whole."""
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
        cell: the first cell, from the start of the line.
        characters: what the cells show.
        text: the index of the text among those of its entry.
        start: the index of the first character in the text.
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
    """The style that marks what shows the text with this index."""
    return Style.from_meta({_TEXT: text, _MARKER: marker})


class TextCollector:
    """The texts of one block, in the order in which they are laid out.

    Attributes:
        texts: those so far.
    """

    def __init__(self, first: int = 0, before: str = "\n\n") -> None:
        """`first`: the index of the first text in its entry; `before`: what separates it."""
        self.texts: list[PlainText] = []
        self._first = first
        self._before = before
        self._marker = ""
        self._indent = 0

    def add(self, text: Text) -> Text:
        """Add `text` and mark it; returns it, its tabs expanded."""
        marker, raw = self._marker, text.plain
        text.expand_tabs(TAB_SIZE)
        text.stylize(mark_of(self._index))
        self.texts.append(PlainText(marker + text.plain, marker + raw, self._before, len(marker)))
        self._marker, self._before = "", "\n\n"
        return text

    def separate(self, before: str) -> None:
        """Separate the next text by `before`, unless it is the block's first."""
        if self.texts:
            self._before = before

    @contextmanager
    def item(self, marker: str) -> Iterator[Style]:
        """Within a list item: its first text begins with `marker`, which has the style given."""
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
    """The spans of each line; `texts` are those from index `first` on."""
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
    """`line` with the same look and nothing else in its styles.

    The spaces that fill a line are one with its text again, which only the mark divided from them.
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
    """The index of the text that `segment` shows, and whether as its marker; -1 for none."""
    meta = segment.style.meta if segment.style is not None else {}
    return meta.get(_TEXT, -1), meta.get(_MARKER, False)


def _find(characters: str, text: str, start: int) -> int:
    """Where `characters` are in `text` from `start` on; only white space is lost in wrapping."""
    at = start
    while not text.startswith(characters, at):
        if at >= len(text) or not text[at].isspace():
            return start
        at += 1
    return at
