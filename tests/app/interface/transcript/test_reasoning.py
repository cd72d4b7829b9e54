"""Reasoning and answer are told apart, wherever the text was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.interface.transcript.answer import CLOSE, OPEN, Parts, split


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ("plain", Parts("", "plain", False)),
        ("<think>hm</think>\n\nyes", Parts("hm", "yes", False)),
        ("\n<think>\nhm", Parts("hm", "", True)),
        ("hm\n</think>\n\nyes", Parts("hm", "yes", False)),
        ("the tag `</think>` closes", Parts("", "the tag `</think>` closes", False)),
        ("<think></think>yes", Parts("", "yes", False)),
        ("a < b", Parts("", "a < b", False)),
    ],
)
def test_growing(raw: str, parts: Parts) -> None:
    assert split(raw, growing=True) == parts


def test_half_a_tag_waits_for_the_rest() -> None:
    assert split("<thi", growing=True) == Parts("", "", False)
    assert split("<thi", growing=False) == Parts("", "<thi", False)
    assert split("<think>hm</thi", growing=True) == Parts("hm", "", True)


def test_reasoning_that_was_cut_off_is_not_thinking_any_more() -> None:
    assert split("<think>hm", growing=False) == Parts("hm", "", False)


@given(st.lists(st.sampled_from([OPEN, CLOSE, "a", "\n", " ", "<", "</think", ">"]), max_size=12))
def test_nothing_is_lost_but_tags_and_space(words: list[str]) -> None:
    raw = "".join(words)
    parts = split(raw, growing=False)

    def bare(text: str) -> str:
        return "".join(text.replace(OPEN, "").replace(CLOSE, "").split())

    assert bare(parts.thought) + bare(parts.answer) == bare(raw)
