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
        ("please", "please"),
        ("x" * 100, "x" * (MAX_CHARACTERS - 1) + "…"),
        ("word " * 30, "word word word word word word word word word…"),
    ],
)
def test_a_question_without_its_courtesies(question: str, expected: str) -> None:
    assert first_title(question) == expected


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("How do I copy a directory?", "With cp -r.", "Copy a directory"),
        ("hi!", "Hello there.\n\nAsk me about shells.", "hi"),
        ("why?", "## Copying trees\n\nBecause.", "Copying trees"),
        ("Explain this", "This is a **walrus**, a sea mammal. It has tusks.", None),
        ("Explain this", "<think>hm</think>\n\n1. Walrus tusks grow.", "Walrus tusks grow"),
        ("これは何？", "セイウチです。", "これは何？"),
    ],
)
def test_the_answer_helps_where_the_question_says_too_little(
    question: str, answer: str, expected: str | None
) -> None:
    assert title(question, answer) == (expected or "This is a walrus, a sea mammal")


def test_long_texts_are_titled_at_once() -> None:
    blank = "\n" * 1_000_000
    assert first_title(f"{blank}x") == ""
    assert title(f"why?{blank}", f"Walrus tusks{blank}") == "Walrus tusks"
    assert first_title("What is this walrus?\n" + "```\n" * 300_001) == "What is this walrus"


@given(st.text(max_size=300), st.text(max_size=300))
def test_titles_are_one_short_line_whatever_is_said(question: str, answer: str) -> None:
    for given_title in (first_title(question), title(question, answer)):
        assert len(given_title) <= MAX_CHARACTERS
        assert "\n" not in given_title
