"""Texts are cut to the given number of cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from app.interface.cells import keep_end, keep_start

TEXTS = st.text("ab/日本e\u0301😀🇩🇪…", max_size=30)


@given(TEXTS, st.integers(1, 20))
def test_cut_text_fits_and_is_as_long_as_possible(text: str, columns: int) -> None:
    start, end = keep_start(text, columns), keep_end(text, columns)
    assert cell_len(start) <= columns
    assert cell_len(end) <= columns
    if cell_len(text) <= columns:
        assert start == end == text
    else:
        assert text.endswith(end.removeprefix("…"))
        assert text.startswith(start)
        assert cell_len(end) >= columns - 2
