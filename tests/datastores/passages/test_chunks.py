"""Chunks follow the structure, stay within their size, and lead back to their lines."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datastores.passages.chunks import MAX_CHARACTERS, Chunk, split

LINES = st.lists(
    st.sampled_from(
        ["", "word", "# One", "## Two", "```", "\fpage", "    x = 1", "a longer line of words", "é"]
    ),
    max_size=60,
)


@example(["word", "", "", "```", "    x = 1", "```"], 23)
@example(["```", "# One", "é", ""], 8)
@given(LINES, st.integers(8, 80))
def test_every_line_is_in_one_chunk_at_its_number(lines: list[str], size: int) -> None:
    chunks = list(split("\n".join(lines), size))
    seen: list[str] = []
    for before, after in pairwise(chunks):
        assert before.last_line <= after.first_line
    for chunk in chunks:
        assert 0 < len(chunk.content) <= size
        seen += chunk.content.split("\n")
    written = [line.removeprefix("\f") for line in lines]
    assert "".join(seen) == "".join(line for line in written if line.strip() or line)


@given(LINES)
def test_lines_that_fit_are_found_again(lines: list[str]) -> None:
    written = [line.removeprefix("\f") for line in lines]
    for chunk in split("\n".join(lines), 40):
        assert chunk.content.split("\n") == written[chunk.first_line - 1 : chunk.last_line]


@given(st.text(), st.integers(2, 50))
def test_any_text_is_cut_within_bounds(text: str, size: int) -> None:
    chunks = list(split(text, size))
    assert all(len(chunk.content) <= size for chunk in chunks)
    assert re.sub(r"\s", "", "".join(c.content for c in chunks)) == re.sub(r"\s", "", text)


@pytest.mark.parametrize("line", ["ab\n", "\n", "# ab\n", "ab\n\n"])
def test_lines_are_not_in_memory_all_at_once(line: str) -> None:
    text = line * 50_000
    tracemalloc.start()
    number = sum(1 for _ in split(text))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert number > 100 or not text.strip()
    assert peak < 400_000


def test_a_line_of_a_million_characters_is_many_chunks() -> None:
    chunks = list(split("a" * 1_000_000))
    assert "".join(chunk.content for chunk in chunks) == "a" * 1_000_000
    assert {chunk.first_line for chunk in chunks} == {1}


def test_short_sections_stay_together_and_long_ones_part_at_headings() -> None:
    short = "# A\n\none\n\n## B\n\ntwo"
    assert list(split(short)) == [Chunk("A", 1, 7, short)]
    body = "word " * 150
    long = f"# A\n\n{body}\n\n## B\n\n{body}\n\n## C\n\n{body}"
    assert [chunk.heading for chunk in split(long)] == ["A", "A > B", "A > C"]


def test_code_is_not_cut_at_its_blank_lines_or_comments() -> None:
    code = "```python\n# not a heading\n\nx = 1\n```"
    text = f"{'word ' * 200}\n\n{code}"
    assert [chunk.content for chunk in split(text)][-1] == code


def test_a_page_begins_a_chunk() -> None:
    assert [chunk.content for chunk in split("one\n\ftwo")] == ["one", "two"]
    assert MAX_CHARACTERS > 100
