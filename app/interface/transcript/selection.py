"""Selection in the transcript: from cells on the screen to places in texts, and to copied text.

In the offsets of a selection, `y` is the number of a text among those of all entries, and `x` the
index of a character in it. They stay valid when rows are added above, when the width changes, and
while an answer grows.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset
from textual.strip import Strip

from app.interface.transcript.plain_text import PlainText, Span
from app.interface.transcript.rows import Layout, RowWindow

MAX_TEXTS = 1 << 20
"""Text `t` of entry `e` has the number `e * MAX_TEXTS + t`; no entry has as many texts."""

Extent = tuple[Offset, Offset]
"""The places of the first selected character and of the one after the last."""


def offset_at(window: RowWindow, row: int, cell: int) -> Offset | None:
    """The place at `cell` of `row`, or the nearest one, preferably above; None without any text."""
    rows = window.rows
    if row < len(rows) and rows[row].spans:
        return _offset_in(window, row, cell)
    for above in range(min(row, len(rows)) - 1, -1, -1):
        if spans := rows[above].spans:
            return Offset(spans[-1].end, _number(window, above, spans[-1]))
    for below in range(row + 1, len(rows)):
        if spans := rows[below].spans:
            return Offset(spans[0].start, _number(window, below, spans[0]))
    return None


def _offset_in(window: RowWindow, row: int, cell: int) -> Offset:
    spans = window.rows[row].spans
    span = next((span for span in reversed(spans) if span.cell <= cell), spans[0])
    number = _number(window, row, span)
    if cell < span.cell:
        return Offset(span.start, number)
    if cell < span.end_cell:
        return Offset(span.index_at(cell), number)
    # Textual includes the character under the pointer: at the end of a line that is white space
    # dropped by wrapping. Where a word is divided, the next letter must not be included.
    following = text_at(window, number).shown[span.end : span.end + 1]
    return Offset(span.end - bool(following.strip()), number)


def _number(window: RowWindow, row: int, span: Span) -> int:
    return window.index_at(row) * MAX_TEXTS + span.text


def text_at(window: RowWindow, number: int) -> PlainText:
    """The text with this number."""
    entry, text = divmod(number, MAX_TEXTS)
    return window.entries[entry].texts[text]


def selected_text(window: RowWindow, layout: Layout, extent: Extent) -> str:
    """The text between two places, as it was written."""
    pieces: list[str] = []
    for number, text in _texts(window, layout, extent):
        start, end = _characters(number, extent)
        pieces += [text.before, text.cut(start, end)]
    return "".join(pieces[1:]).strip("\n")


def _texts(window: RowWindow, layout: Layout, extent: Extent) -> Iterator[tuple[int, PlainText]]:
    """The texts that `extent` touches, with their numbers."""
    start, end = extent
    for index in range(start.y // MAX_TEXTS, end.y // MAX_TEXTS + 1):
        entry = window.entries[index]
        if not window.first <= index < window.last:
            entry.rows(layout)
        for text, plain in enumerate(entry.texts):
            number = index * MAX_TEXTS + text
            if start.y <= number <= end.y and plain.shown:
                yield number, plain


def _characters(number: int, extent: Extent) -> tuple[int, int]:
    """Start and end of the selected characters in a text that `extent` touches."""
    start, end = extent
    return start.x if number == start.y else 0, end.x if number == end.y else MAX_TEXTS


def highlight(content: Strip, window: RowWindow, row: int, extent: Extent, style: Style) -> Strip:
    """`content` of `row` with its selected characters in `style`."""
    cells = [
        span.cells(*_characters(number, extent))
        for span in window.rows[row].spans
        if extent[0].y <= (number := _number(window, row, span)) <= extent[1].y
    ]
    for left, right in cells:
        if left < right:
            before, selected, after = content.divide([left, right, content.cell_length])
            # As a post style, since code has its own background.
            painted = Strip(Segment.apply_style(selected, post_style=style), right - left)
            content = Strip.join([before, painted, after])
    return content
