"""Reasoning and answer are separated, wherever the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.interface.transcript.answer import CLOSE_TAG, OPEN_TAG, ReasoningSplit, split_reasoning


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ("plain", ReasoningSplit("", "plain", False)),
        ("<think>hm</think>\n\nyes", ReasoningSplit("hm", "yes", False)),
        ("\n<think>\nhm", ReasoningSplit("hm", "", True)),
        ("hm\n</think>\n\nyes", ReasoningSplit("hm", "yes", False)),
        ("the tag `</think>` closes", ReasoningSplit("", "the tag `</think>` closes", False)),
        ("<think></think>yes", ReasoningSplit("", "yes", False)),
        ("a < b", ReasoningSplit("", "a < b", False)),
    ],
)
def test_growing(raw: str, parts: ReasoningSplit) -> None:
    assert split_reasoning(raw, growing=True) == parts


def test_a_partial_tag_is_held_back() -> None:
    assert split_reasoning("<thi", growing=True) == ReasoningSplit("", "", False)
    assert split_reasoning("<thi", growing=False) == ReasoningSplit("", "<thi", False)
    assert split_reasoning("<think>hm</thi", growing=True) == ReasoningSplit("hm", "", True)


def test_reasoning_that_was_cut_off_is_no_longer_thinking() -> None:
    assert split_reasoning("<think>hm", growing=False) == ReasoningSplit("hm", "", False)


@given(
    st.lists(
        st.sampled_from([OPEN_TAG, CLOSE_TAG, "a", "\n", " ", "<", "</think", ">"]), max_size=12
    )
)
def test_only_tags_and_whitespace_are_dropped(words: list[str]) -> None:
    raw = "".join(words)
    parts = split_reasoning(raw, growing=False)

    def bare(text: str) -> str:
        return "".join(text.replace(OPEN_TAG, "").replace(CLOSE_TAG, "").split())

    assert bare(parts.reasoning) + bare(parts.answer) == bare(raw)
