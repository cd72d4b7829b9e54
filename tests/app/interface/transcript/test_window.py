"""The window of rows laid out, against laying everything out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment

from app.interface.transcript.rows import Frame, Row
from app.interface.transcript.window import RowWindow
from tests.app.interface.transcript.test_markdown import plain_look

FRAME = Frame(plain_look(), 40)


class Lines:
    """An entry of so many rows, whose text tells them apart."""

    def __init__(self, name: int, rows: int) -> None:
        self.name = name
        self.laid_out = [self._row(row) for row in range(rows)]

    def rows(self, frame: Frame) -> list[Row]:
        return list(self.laid_out)

    def grow(self, rows: int) -> None:
        self.laid_out = [*self.laid_out[:-1], *(self._row(100 + row) for row in range(rows))]

    def _row(self, row: int) -> Row:
        return Row([Segment(f"{self.name}.{row}")])


def texts(paper: RowWindow) -> list[str]:
    return [row.text for row in paper.rows]


heights = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@given(heights, st.data())
def test_the_window_is_a_part_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    entries = [Lines(name, rows) for name, rows in enumerate(sizes)]
    paper = RowWindow()
    paper.show(entries, data.draw(st.integers(0, len(entries))))
    for _ in range(data.draw(st.integers(0, 6))):
        count = data.draw(st.integers(0, 8))
        if data.draw(st.booleans()):
            before = len(paper.rows)
            assert paper.grow_up(FRAME, count) == len(paper.rows) - before
        else:
            paper.grow_down(FRAME, count)
        if data.draw(st.booleans()):
            grown = data.draw(st.sampled_from(entries))
            grown.grow(data.draw(st.integers(1, 4)))
            paper.update(grown, FRAME)
    whole = [row for entry in entries[paper.first : paper.last] for row in entry.rows(FRAME)]
    assert texts(paper) == [row.text for row in whole]
    for index, row in enumerate(texts(paper)):
        entry, offset = paper.at(index)
        assert entry.rows(FRAME)[offset].text == row
        assert paper.start(entry) == index - offset


def test_an_update_tells_which_rows_changed() -> None:
    entries = [Lines(0, 3), Lines(1, 3), Lines(2, 3)]
    paper = RowWindow()
    paper.show(entries, 0)
    paper.grow_down(FRAME, 100)
    assert paper.update(entries[1], FRAME) == range(6, 6)
    entries[1].grow(1)
    assert paper.update(entries[1], FRAME) == range(5, 6)
    entries[1].grow(2)
    assert paper.update(entries[1], FRAME) == range(6, 10)


def test_an_entry_out_of_sight_changes_nothing() -> None:
    entries = [Lines(0, 3), Lines(1, 3)]
    paper = RowWindow()
    paper.show(entries, 1)
    paper.grow_down(FRAME, 100)
    assert paper.update(entries[0], FRAME) == range(0)
    assert paper.start(entries[0]) is None
