"""Columns of a page: read one after another, whatever order the file has; tables row by row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing.readers.pdf import pdf_text
from app.importing.readers.pdf_columns import TextBox, reading_order
from tests.app.importing.texts import pdf_of

LEFT = (
    "The keeper of the lighthouse paints the",
    "north wall every April, and he needs",
    "twelve litres of white paint for it, be-",
    "cause the salt eats into the old coat of",
    "lime. In May he mends the boats.",
)
RIGHT = (
    "The ferry to Aspholm costs nine crowns",
    "for adults and four for children, who",
    "have to sit below deck in any weather.",
    "Dogs travel free if they are quiet, and",
    "bicycles are charged as children.",
)
THIRD = (
    "A third column speaks of other matters",
    "entirely, such as the bees of the mill",
    "and the quince by the southern wall of",
    "the garden, which ripens very late and",
    "is made into jelly in November.",
)
TITLE = "A title across all of the columns of this page"
READ: dict[tuple[str, ...], str] = {
    LEFT: "The keeper of the lighthouse paints the north wall every April, and he needs twelve"
    " litres of white paint for it, because the salt eats into the old coat of lime. In May he"
    " mends the boats.",
    RIGHT: "The ferry to Aspholm costs nine crowns for adults and four for children, who have to"
    " sit below deck in any weather.\nDogs travel free if they are quiet, and bicycles are charged"
    " as children.",
    THIRD: "A third column speaks of other matters entirely, such as the bees of the mill and the"
    " quince by the southern wall of the garden, which ripens very late and is made into jelly in"
    " November.",
}


def shown(x: float, y: float, text: str, size: int = 10) -> str:
    return f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET\n"


def rows(columns: Sequence[Sequence[str]], lefts: Sequence[float], top: float = 700) -> str:
    """The columns, written line by line across all of them."""
    return "".join(
        shown(left, top - 14 * number, text)
        for number, line in enumerate(zip(*columns, strict=True))
        for left, text in zip(lefts, line, strict=True)
    )


@pytest.mark.parametrize(
    ("columns", "lefts"),
    [
        ((LEFT, RIGHT), (60, 320)),
        ((LEFT, RIGHT), (60, 252)),
        ((LEFT, RIGHT, THIRD), (20, 220, 420)),
        ((RIGHT[:3], THIRD[:3]), (60, 320)),
        ((LEFT,), (60,)),
    ],
)
def test_columns_are_read_one_after_another(
    columns: Sequence[Sequence[str]], lefts: Sequence[float]
) -> None:
    across = pdf_text(pdf_of(rows(columns, lefts)))
    places = [across.index(line[:20]) for column in columns for line in column]
    assert places == sorted(places)
    if len(columns[0]) == len(LEFT):
        assert across == "\n".join(READ[tuple(column)] for column in columns)
    beside = "".join(rows([column], [left]) for column, left in zip(columns, lefts, strict=True))
    assert pdf_text(pdf_of(beside)) == across


def test_what_crosses_the_gutter_is_read_where_it_stands() -> None:
    heading = "A heading that runs across both of the columns of it"
    page = (
        shown(60, 740, TITLE, 14)
        + rows((LEFT, RIGHT), (60, 320))
        + shown(60, 610, heading, 14)
        + rows((THIRD, LEFT), (60, 320), 590)
        + shown(60, 500, "and a line at the foot of the page that runs across both of its columns")
    )
    read = pdf_text(pdf_of(page))
    parts = [TITLE, READ[LEFT], READ[RIGHT], heading, READ[THIRD], READ[LEFT], "and a line at"]
    places = [read.find(part) for part in parts[:5]]
    assert -1 not in places
    assert places == sorted(places)
    assert read.endswith("both of its columns")
    assert read.count(READ[LEFT]) == 2


@pytest.mark.parametrize(
    ("columns", "lefts"),
    [
        (
            (
                ("-a, --all", "-l", "-r, --reverse", "--help", "-v"),
                ("show all files", "long listing", "sort in reverse order", "help", "version"),
            ),
            (60, 320),
        ),
        ((LEFT, ("1", "12", "13", "40", "51")), (60, 500)),
    ],
)
def test_rows_of_a_table_stay_rows(
    columns: Sequence[Sequence[str]], lefts: Sequence[float]
) -> None:
    boxes = [
        TextBox(left, 700 - 14 * row, left + 5 * len(text), 710 - 14 * row, row * 2 + column)
        for row, line in enumerate(zip(*columns, strict=True))
        for column, (left, text) in enumerate(zip(lefts, line, strict=True))
    ]
    assert reading_order(boxes) == []


def test_a_page_without_sane_places_keeps_the_order_of_the_file() -> None:
    boxes = [TextBox(left, 0, float("inf"), float("nan"), 1) for left in range(9)]
    assert reading_order(boxes) == []
    assert reading_order([]) == []


_NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, st.floats(0, 500), st.floats(0, 50)), max_size=40))
def test_no_box_is_lost_or_read_twice(places: list[tuple[float, float, float, float]]) -> None:
    boxes = [
        TextBox(left, bottom, left + width, bottom + height, number)
        for number, (left, bottom, width, height) in enumerate(places)
    ]
    lines = reading_order(boxes)
    read = sorted(box.number for line in lines for box in line)
    assert read in ([], list(range(len(boxes))))
    assert all(first.left <= second.left for line in lines for first, second in pairwise(line))
