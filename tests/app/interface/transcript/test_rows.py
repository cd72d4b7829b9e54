"""The window of rows equals a part of the whole layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment

from app.interface.transcript.plain_text import PlainText
from app.interface.transcript.rows import Layout, Row, RowWindow
from tests.app.interface.transcript.test_markdown import plain_styles

LAYOUT = Layout(plain_styles(), 40)


class Lines:
    """An entry with a number of distinguishable rows."""

    def __init__(self, name: int, rows: int) -> None:
        self.name = name
        self.texts: list[PlainText] = []
        self.laid_out = [self._row(row) for row in range(rows)]

    def rows(self, layout: Layout) -> list[Row]:
        return list(self.laid_out)

    def grow(self, rows: int) -> None:
        self.laid_out = [*self.laid_out[:-1], *(self._row(100 + row) for row in range(rows))]

    def _row(self, row: int) -> Row:
        return Row([Segment(f"{self.name}.{row}")])


def texts(window: RowWindow) -> list[str]:
    return [row.text for row in window.rows]


heights = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@given(heights, st.data())
def test_the_window_is_a_slice_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    entries = [Lines(name, rows) for name, rows in enumerate(sizes)]
    window = RowWindow()
    window.show(entries, data.draw(st.integers(0, len(entries))))
    for _ in range(data.draw(st.integers(0, 6))):
        count = data.draw(st.integers(0, 8))
        if data.draw(st.booleans()):
            before = len(window.rows)
            assert window.grow_up(LAYOUT, count) == len(window.rows) - before
        else:
            window.grow_down(LAYOUT, count)
        if data.draw(st.booleans()):
            grown = data.draw(st.sampled_from(entries))
            grown.grow(data.draw(st.integers(1, 4)))
            window.update(grown, LAYOUT)
    whole = [row for entry in entries[window.first : window.last] for row in entry.rows(LAYOUT)]
    assert texts(window) == [row.text for row in whole]
    for index, row in enumerate(texts(window)):
        entry, offset = window.entry_at(index)
        assert entry.rows(LAYOUT)[offset].text == row
        assert window.first_row(entry) == index - offset


def test_an_update_returns_the_changed_rows() -> None:
    entries = [Lines(0, 3), Lines(1, 3), Lines(2, 3)]
    window = RowWindow()
    window.show(entries, 0)
    window.grow_down(LAYOUT, 100)
    assert window.update(entries[1], LAYOUT) == range(6, 6)
    entries[1].grow(1)
    assert window.update(entries[1], LAYOUT) == range(5, 6)
    entries[1].grow(2)
    assert window.update(entries[1], LAYOUT) == range(6, 10)


def test_an_entry_outside_the_window_changes_nothing() -> None:
    entries = [Lines(0, 3), Lines(1, 3)]
    window = RowWindow()
    window.show(entries, 1)
    window.grow_down(LAYOUT, 100)
    assert window.update(entries[0], LAYOUT) == range(0)
    assert window.first_row(entries[0]) is None
