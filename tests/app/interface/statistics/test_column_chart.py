"""Columns are exact to an eighth of a line, and within their frame."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.style import Style

from app.interface.statistics.column_chart import (
    AXIS_COLUMNS,
    Column,
    ColumnPart,
    Frame,
    axis_top,
    column_chart,
    short_number,
)

RED, BLUE = Style(color="red"), Style(color="blue")


def drawn(*values: float, height: int = 2, width: int = 12) -> list[str]:
    columns = [Column(str(index), (ColumnPart(value, RED),)) for index, value in enumerate(values)]
    return [line.plain for line in column_chart(columns, Frame(width, height, Style()))]


def test_heights_are_exact_to_an_eighth() -> None:
    assert drawn(10, 5, 2.5, 0, height=2, width=10) == [
        "  10 │█   ",
        "   0 │██▄ ",
        "      0  3",
    ]


def test_small_values_are_visible() -> None:
    assert drawn(1000, 1, 0, height=1, width=9)[0].endswith("█▁ ")


def test_two_parts_share_a_cell_by_foreground_and_background() -> None:
    column = Column("", (ColumnPart(4, RED), ColumnPart(6, BLUE)))
    line = column_chart([column], Frame(AXIS_COLUMNS + 1, 1, Style()))[0]
    [span] = [span for span in line.spans if span.style not in ("", Style())]
    assert line.plain[-1] == "▃"
    assert isinstance(span.style, Style)
    assert (span.style.color, span.style.bgcolor) == (RED.color, BLUE.color)


def test_the_oldest_of_too_many_columns_are_left_out() -> None:
    assert drawn(*([8] * 5), 4, 2, height=1, width=AXIS_COLUMNS + 3)[0][-3:] == "█▄▂"


@example([[0.0078125]], 8, 2)
@given(
    st.lists(st.lists(st.floats(0, 1e12), min_size=1, max_size=4), max_size=40),
    st.integers(8, 120),
    st.integers(1, 9),
)
def test_every_line_fits(values: list[list[float]], width: int, height: int) -> None:
    columns = [
        Column("31 Aug", tuple(ColumnPart(value, RED) for value in parts)) for parts in values
    ]
    lines = column_chart(columns, Frame(width, height, Style()))
    assert len(lines) == height + 1
    assert all(line.cell_len <= width for line in lines)


@given(st.floats(1e-9, 1e12))
def test_the_axis_ends_at_a_round_number_just_above(largest: float) -> None:
    assert largest * (1 - 1e-6) <= axis_top(largest) <= largest * 2.01


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.005, "5e-3"),
        (0.5, "0.5"),
        (80, "80"),
        (12_000, "12k"),
        (1_500_000, "1.5M"),
        (2e9, "2G"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
