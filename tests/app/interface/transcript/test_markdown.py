"""Markdown as lines: streaming equals laying out at once for any text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from textual.color import Color

from app.interface.transcript import markdown
from app.interface.transcript.markdown import MarkdownStream
from app.interface.transcript.styles import Styles, make_styles
from app.sanitise import clean

WORDS = [
    *("# ", "## ", "- ", "1. ", "> ", "```", "```py\n", "~~~", "`", "*", "**", "_", "~~", "---"),
    *(
        "| a | b |\n",
        "|---|---|\n",
        "|",
        "[",
        "](",
        ")",
        "<b>",
        "<!--",
        "[x]: y",
        "!",
        "\\",
        "&lt;",
    ),
    *("\n", "\n\n", "  ", "    ", "\t", "word", "a longer phrase", "[/INST]", "[bold", "===\n"),
    *("\\[", "\\]", "\\(", "\\)", "$$", "$", "\\begin{a}", "\\end{a}", "a_1", "\\,"),
]


def plain_styles() -> Styles:
    return make_styles(lambda _: Style(), Color.parse("black"), dark=True)


def lines_of(*fragments: str, width: int = 40) -> list[str]:
    stream = MarkdownStream(plain_styles(), width)
    for fragment in fragments:
        stream.append_fragment(fragment)
    return ["".join(part.text for part in line).rstrip() for line in stream.lines]


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.lists(st.integers(0, 200), max_size=6))
@example(["- ", "word", "\n\n", "    ", "word"], [2, 8])
@example(["word", "\n", "```", "word", "`"], [8])
@example(["word", "\n", "\\[", "word", "\\]", "word"], [7])
def test_streaming_equals_laying_out_at_once(words: list[str], cuts: list[int]) -> None:
    text = "".join(words)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    fragments = [text[start:end] for start, end in pairwise(places)]
    assert lines_of(*fragments) == lines_of(text)


@given(
    st.sampled_from(["", "- ", "> ", "1. ", "```\n", "| a | b |\n|---|---|\n| "]),
    st.lists(st.sampled_from([" ", "\n", "\n- ", "\n> ", "\n\n"]), min_size=4, max_size=40),
    st.integers(0, 300),
)
def test_overlong_blocks_lose_no_text_however_fragmented(
    begin: str, joints: list[str], cut: int
) -> None:
    words = [f"word{number:02}" for number in range(len(joints) + 1)]
    text = begin + "".join(word + joint for word, joint in zip(words, joints, strict=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "MAX_BLOCK_CHARS", 40)
        shown = " ".join(lines_of(text[:cut], text[cut:], width=200))
    assert [word for word in words[:-1] if word not in shown] == []


@given(st.text(max_size=200), st.integers(1, 30))
def test_any_text_at_any_width(text: str, width: int) -> None:
    lines_of(text, width=width)


@pytest.mark.parametrize(
    "text",
    ["[/INST] and [bold", "<b>html</b> <script>", "[label]: not-a-definition", "a &amp b", "***"],
)
def test_text_that_looks_like_markup_is_shown(text: str) -> None:
    shown = "\n".join(lines_of(text))
    assert shown == text or text == "***"


@pytest.mark.parametrize(
    "text",
    [
        r"Thus \(\sum_{i=1}^n a_i\, b_i\) and",
        r"\[ \{3\}_{P_2} \] and $x_1 * y_2 * z$.",
        "\\[\na_1*b\n- c_2*d\n= 3\n\\]",
        "$$\nx_1*y_2*z\n$$",
        "\\begin{align*}\na &= b_1 \\\\\n+ c_*d*\n\\end{align*}",
        r"a\,b\;c \{3\} 5\% \alpha",
        "costs $5 and $10, $HOME/$USER",
    ],
)
def test_latex_is_shown_as_written(text: str) -> None:
    assert "\n".join(lines_of(text, width=80)) == text


def test_text_outside_formulas_is_markdown() -> None:
    assert lines_of(r"costs $5 and *that* $10") == ["costs $5 and that $10"]
    assert lines_of(r"\*not\_bold\* \[x] \( *y*") == ["*not_bold* [x] ( y"]
    assert lines_of("\\[\nopen\n\n*after*") == ["\\[", "open", "", "after"]


def test_columns_of_a_table_are_aligned_for_any_characters() -> None:
    cells = ["a", "日本", "😀", clean("⚠️"), clean("👍🏽"), clean("1️⃣"), "e\u0301", "🇩🇪"]
    rows = lines_of("| h | x |\n|-|-|\n" + "".join(f"| {cell} | end |\n" for cell in cells))
    assert {cell_len(row.partition("end")[0]) for row in rows[2:]} == {7}


def test_links_are_written_out_and_not_clickable() -> None:
    stream = MarkdownStream(plain_styles(), 80)
    stream.append_fragment("[text](http://x.y) ![alt](z.png) <http://auto.link>")
    assert lines_of("[text](http://x.y)", width=80) == ["text (http://x.y)"]
    assert lines_of("![alt](z.png)", width=80) == ["[image: alt] (z.png)"]
    assert lines_of("<http://auto.link>", width=80) == ["http://auto.link"]
    styles = [part.style for line in stream.lines for part in line if part.style]
    assert not any(style.link or any("@" in key for key in style.meta) for style in styles)


def test_line_breaks_of_the_model_are_kept() -> None:
    assert lines_of("roses\nviolets") == ["roses", "violets"]


def test_an_unclosed_fence_is_code_and_keeps_its_lines() -> None:
    assert [line.strip() for line in lines_of("```python\nif x:\n", "    pass")] == [
        "if x:",
        "pass",
    ]


def test_a_long_fence_continues_as_code() -> None:
    code = "\n".join(f"line {number} of [code]" for number in range(2000))
    lines = [line.strip() for line in lines_of("```\n" + code + "\n```")]
    assert lines == code.splitlines()


def test_a_long_text_is_parsed_in_parts_as_if_it_were_streamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "a line\n- item *one*\n\n| a | b |\n|---|---|\n| c | d |\n\n```\ncode\n```\n" * 40
    whole = lines_of(text)
    monkeypatch.setattr(markdown, "MAX_PARSED_CHARS", 50)
    assert lines_of(text) == whole


def test_a_huge_table_is_laid_out_completely() -> None:
    rows = [f"| row {number} | value |" for number in range(1000)]
    shown = "\n".join(lines_of("\n".join(["| a | b |", "|---|---|", *rows])))
    assert all(f"row {number} " in shown for number in (0, 1, 500, 999))


def test_unbounded_nesting_is_shown_as_source() -> None:
    assert "deep" in "".join(lines_of("> " * 60 + "deep")).replace("\n", "")


def test_only_the_last_block_is_laid_out_again() -> None:
    stream = MarkdownStream(plain_styles(), 40)
    stream.append_fragment("first\n\nsecond")
    first = stream.lines[0]
    stream.append_fragment(" and more\n\nthird")
    assert stream.lines[0] is first
    assert stream.stable_lines == 3
