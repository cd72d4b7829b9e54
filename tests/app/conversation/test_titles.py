"""Titles are short, and say what a chat is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation.titles import MAX_CHARACTERS, first_title, title


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How do I copy a directory?", "Copy a directory"),
        ("hi, could you please tell me how to rename many files?", "Rename many files"),
        ("\n\n  What does tar -xzf do?\nand more", "What does tar -xzf do"),
        ("Explain quicksort, please.", "Explain quicksort, please"),
        ("# Plan\n- buy **milk** and `eggs`", "Plan"),
        ("```sh\nls\n```\nWhy does this fail here?", "Why does this fail here"),
        ("Wie kopiere ich ein Verzeichnis?", "Wie kopiere ich ein Verzeichnis"),
        ("What does my_file_name in __init__.py do?", "What does my_file_name in __init__.py do"),
        ("Delete *.txt and *.md files", "Delete *.txt and *.md files"),
        ("Pass *args and **kwargs on", "Pass *args and **kwargs on"),
        ("Is 2*3*4 a **really** *good* idea", "Is 2*3*4 a really good idea"),
        ("please", "please"),
        ("x" * 100, "x" * (MAX_CHARACTERS - 1) + "…"),
        ("word " * 30, "word word word word word word word word word…"),
    ],
)
def test_a_question_without_its_courtesies(question: str, expected: str) -> None:
    assert first_title(question) == expected


@pytest.mark.parametrize(
    ("questions", "answer", "expected"),
    [
        (["How do I copy a directory?"], "With cp -r.", "Copy a directory"),
        (["hi!"], "Hello there, how can I help you today?", "hi"),
        (["why?"], "## Copying trees\n\nBecause.", "Copying trees"),
        (["why?"], "Because.\n\n## Copying trees", "why"),
        (["quicksort"], "Quicksort is a divide-and-conquer algorithm.", "quicksort"),
        (["Explain this"], "<think>hm</think>\n\n# Walrus tusks\n\nThey grow.", "Walrus tusks"),
        (["hi", "How do I copy a directory?"], "", "Copy a directory"),
        (["hi", "thanks", "why?"], "", "hi"),
        (["これは何？"], "セイウチです。", "これは何？"),
    ],
)
def test_another_question_or_a_heading_helps_where_the_first_says_too_little(
    questions: list[str], answer: str, expected: str
) -> None:
    assert title(questions, answer) == expected


def test_long_texts_are_titled_at_once() -> None:
    blank = "\n" * 1_000_000
    assert first_title(f"{blank}x") == ""
    assert title([f"why?{blank}"], f"# Walrus tusks{blank}") == "Walrus tusks"
    assert first_title("What is this walrus?\n" + "```\n" * 300_001) == "What is this walrus"


@given(st.text(max_size=300), st.text(max_size=300))
def test_titles_are_one_short_line_whatever_is_said(question: str, answer: str) -> None:
    for given_title in (first_title(question), title([question], answer)):
        assert len(given_title) <= MAX_CHARACTERS
        assert "\n" not in given_title
