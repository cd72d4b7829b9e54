"""Answers with reasoning: folded, unfolded, growing, and with highlighted origins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.conversation.statistics import Piece
from app.interface.transcript.answer import GROWING, Answer
from app.interface.transcript.rows import Layout
from tests.app.interface.transcript.test_markdown import plain_styles

LAYOUT = Layout(plain_styles(), 60)
CHANNELS = (
    "<|channel|>analysis<|message|>Seventeen and twenty-three.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is **40**."
)
COHERE = "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>It is 40.<|END_RESPONSE|>"


def shown(answer: Answer, layout: Layout = LAYOUT) -> list[str]:
    return [text for row in answer.rows(layout) if (text := row.text)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Seventeen and twenty-three first.</think>40", ["▸ Thought (4 words)", "40"]),
        (CHANNELS, ["▸ Thought (3 words)", "It is 40."]),
        (COHERE, ["▸ Thought (1 word)", "It is 40."]),
        ("<think>\n\n</think>\n\n40", ["40"]),
    ],
)
def test_stored_reasoning_is_folded(text: str, rows: list[str]) -> None:
    assert shown(Answer(text, "stop")) == rows


def test_stopped_reasoning_is_folded_and_unfolds() -> None:
    answer = Answer("[THINK]Seventeen and", "interrupted")
    assert shown(answer) == ["▸ Thought (2 words)", "■ stopped"]
    answer.toggle_folds()
    assert shown(answer) == ["▾ Thought (2 words)", "▏ Seventeen and", "■ stopped"]


def test_channel_markers_are_never_shown_while_the_answer_grows() -> None:
    answer = Answer("", GROWING)
    for letter in CHANNELS:
        answer.append_fragment([Piece(letter, 0)])
        assert not any("<" in row or "final" in row for row in shown(answer))
    answer.end("stop")
    assert shown(answer)[-1] == "It is 40."


def test_only_the_answer_proper_has_highlighted_origins() -> None:
    layout = replace(LAYOUT, highlight_origins=True)
    answer = Answer(COHERE, "stop", runs=[[len(COHERE), ""]])
    assert shown(answer, layout) == ["▸ Thought (1 word)", "It is 40."]
