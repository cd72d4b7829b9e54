"""The curve has every value at its height, and its marks in place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from app.interface.statistics.column_chart import AXIS_COLUMNS, Frame
from app.interface.statistics.line_chart import Curve, Mark, axis_ends, line_chart

PLAIN = Style()


def drawn(curve: Curve, width: int, height: int) -> list[str]:
    return [line.plain for line in line_chart(curve, Frame(width, height, PLAIN), PLAIN, PLAIN)]


def test_a_rising_curve_with_a_mark() -> None:
    curve = Curve([0.5, 0.5, 0.9, 0.9], ("1 Nov", "9 Nov"), [Mark(2, "v1")])
    assert drawn(curve, AXIS_COLUMNS + 13, 3) == [
        " 90% │       ⢠⠞⠉⠉⠉⠉",
        "     │     ⢀⡴⠋┊    ",
        " 50% │⣀⣀⣀⣀⣠⠞  ┊    ",
        "              v1   ",
        "      1 Nov   9 Nov",
    ]


def test_marks_that_would_touch_keep_the_latest() -> None:
    curve = Curve([0.5] * 10, ("", ""), [Mark(3, "v1"), Mark(4, "v2"), Mark(9, "v3")])
    labels = drawn(curve, AXIS_COLUMNS + 10, 2)[2]
    assert labels.split() == ["v2", "v3"]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=200),
    st.integers(8, 120),
    st.integers(2, 9),
    st.lists(st.integers(0, 199), max_size=5),
)
def test_every_line_fits_and_every_column_has_a_dot(
    values: list[float], width: int, height: int, marks: list[int]
) -> None:
    low, high = axis_ends(values)
    assert low <= min(values) + 1e-6
    assert high >= max(values) - 1e-6
    assert high - low > 0.05
    at = [Mark(index, f"v{index}") for index in sorted(set(marks)) if index < len(values)]
    lines = drawn(Curve(values, ("31 Aug", "1 Sep"), at), width, height)
    assert len(lines) == height + 1 + bool(at)
    assert all(len(line) <= width for line in lines)
    for column in range(AXIS_COLUMNS, width):
        assert any("⠀" < line[column] <= "⣿" for line in lines[:height])
