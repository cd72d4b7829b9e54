"""Reasoning and answer are told apart in every family's output, wherever it is cut."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.chat_template.reasoning import (
    FAMILIES,
    AnswerStream,
    added_opening,
    marked_piece,
    prompt_opening,
    split_reasoning,
    without_marks,
)

SUM = "The user wants 17 + 23. Seventeen and twenty is 37, and three more is 40."
OUTPUTS = {
    "qwen3": (f"<think>\n{SUM}\n</think>\n\n17 + 23 = **40**", SUM, "17 + 23 = **40**"),
    "qwen3 without thinking": ("<think>\n\n</think>\n\n40", "", "40"),
    "deepseek r1, the prompt opens": (f"{SUM}\n</think>\n\n40", SUM, "40"),
    "on one line": (f"{SUM}</think>40", SUM, "40"),
    "glm": (f"\n<think>{SUM}</think>\nIt is 40.", SUM, "It is 40."),
    "deepseek v3.1, closed at once": ("</think>40", "", "40"),
    "interleaved": ("<think>a</think>\n<think>b</think>\n40", "a\n\nb", "40"),
    "magistral": (f"[THINK]{SUM}[/THINK]It is 40.", SUM, "It is 40."),
    "gpt-oss": (
        f"<|channel|>analysis<|message|>{SUM}<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is **40**.",
        SUM,
        "It is **40**.",
    ),
    "gpt-oss, twice": (
        "<|channel|>analysis<|message|>Simple.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I add them.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>40<|return|>",
        "Simple.\n\nI add them.",
        "40",
    ),
    "gpt-oss, at once": ("<|channel|>final<|message|>40", "", "40"),
    "gpt-oss, run together": (
        "analysisWe need to add. Simple.assistantfinalIt is 40.",
        "We need to add. Simple.",
        "It is 40.",
    ),
    "gemma 4": (f"<|channel>thought\n{SUM}\n<channel|>It is 40.", SUM, "It is 40."),
    "gemma 4, empty": ("<|channel>thought\n<channel|>It is 40.", "", "It is 40."),
    "granite 3.3": (
        f"<think>{SUM}</think><response>It is 40.</response>",
        SUM,
        "It is 40.",
    ),
    "granite 3.2": (
        f"Here is my thought process:\n{SUM}\n\nHere is my response:\nIt is 40.",
        SUM,
        "It is 40.",
    ),
    "command r7b": (
        f"<|START_THINKING|>{SUM}<|END_THINKING|><|START_RESPONSE|>It is 40.<|END_RESPONSE|>",
        SUM,
        "It is 40.",
    ),
    "command a": (
        f"<|START_THINKING|>{SUM}<|END_THINKING|><|START_TEXT|>It is 40.<|END_TEXT|>",
        SUM,
        "It is 40.",
    ),
    "command r7b, at once": ("<|START_RESPONSE|>It is 40.<|END_RESPONSE|>", "", "It is 40."),
    "openthinker": (
        f"<|begin_of_thought|>\n\n{SUM}\n\n<|end_of_thought|>\n\n"
        "<|begin_of_solution|>\n\nIt is 40.\n\n<|end_of_solution|>",
        SUM,
        "It is 40.\n\n",
    ),
    "apriel": (
        f"Here are my reasoning steps:\n{SUM}\n[BEGIN FINAL RESPONSE]\nIt is 40.\n"
        "[END FINAL RESPONSE]",
        SUM,
        "It is 40.\n",
    ),
    "exaone": (f"<thought>\n{SUM}\n</thought>\n\nIt is 40.", SUM, "It is 40."),
    "seed": (f"<seed:think>{SUM}</seed:think>It is 40.", SUM, "It is 40."),
    "kimi-vl": (f"◁think▷{SUM}◁/think▷It is 40.", SUM, "It is 40."),
    "kimi k3": (
        f"<|open|>think<|sep|>{SUM}<|close|>think<|sep|>"
        "<|open|>response<|sep|>It is 40.<|close|>response<|sep|>",
        SUM,
        "It is 40.",
    ),
    "solar open": (
        f"<|think|>{SUM}<|end|><|begin|>assistant<|content|>It is 40.<|end|>",
        SUM,
        "It is 40.",
    ),
    "muse glimmer": (
        f" to=self<|message|>{SUM}<|eom|><|start|>assistant to=user<|message|>It is 40.",
        SUM,
        "It is 40.",
    ),
    "muse glimmer, at once": (" to=user<|message|>It is 40.", "", "It is 40."),
    "apertus": (f"<|inner_prefix|>{SUM}<|inner_suffix|>It is 40.", SUM, "It is 40."),
    "marco-o1": (
        f"<Thought>\n{SUM}\n</Thought>\n<Output>\nIt is 40.\n</Output>",
        SUM,
        "It is 40.\n",
    ),
    "k2 think": (f"<think_fast>\n{SUM}\n</think_fast>\n\n40", SUM, "40"),
    "opened by prompt and model": (f"<think>\n<think>\n{SUM}</think>\n40", SUM, "40"),
    "about the mark": ("<think>\nIt is `</think>`.\n</think>\n40", "It is `</think>`.", "40"),
    "code with the mark": (
        "<think>\n```\n</think>\n```\nSo.\n</think>\n40",
        "```\n</think>\n```\nSo.",
        "40",
    ),
}

PLAIN = [
    "plain",
    "",
    "a < b",
    "analysis of the data shows a rise",
    "Here is my thought process: I go left.",
    "the tag `</think>` closes",
    "Write <think>, then reason, then </think> and the answer.",
    '```xml\n</think>\n```\nand "[/THINK]" too',
    "Use `<think>`, or:\n\n```\n<think>\nhm\n</think>\n```\n",
    "<answer>42</answer>",
    "<response>as XML</response>",
]


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_familys_output(name: str) -> None:
    text, reasoning, answer = OUTPUTS[name]
    split = split_reasoning(text)
    assert (split.reasoning, split.answer, split.marked) == (reasoning, answer, True)
    assert text[split.start : split.end] == answer


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>a<think>b</think>c</think>40", "a<think>b</think>c", "40"),
        ("<think>a <think> b</think>40", "a <think> b", "40"),
        ('<think>It is "40"</think>"Forty"', 'It is "40"', '"Forty"'),
        ("<think>a</think>40 </think> x", "a", "40 </think> x"),
    ],
)
def test_of_several_marks_the_one_that_ends_the_reasoning_counts(
    text: str, reasoning: str, answer: str
) -> None:
    split = split_reasoning(text)
    assert (split.reasoning, split.answer) == (reasoning, answer)


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_about_marks_has_none(text: str) -> None:
    for growing in (False, True):
        split = split_reasoning(text, growing=growing)
        assert (split.reasoning, split.answer, split.marked) == ("", text, False)


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_mark_shows_while_the_text_grows(name: str) -> None:
    text, reasoning, answer = OUTPUTS[name]
    bare = not any(text.lstrip().startswith(one) for marks in FAMILIES for one in marks.openings)
    if name in ("gpt-oss, run together", "granite 3.2") or (bare and reasoning):
        return  # known by its closing only
    for length in range(len(text) + 1):
        split = split_reasoning(text[:length], growing=True)
        assert answer.startswith(split.answer), text[:length]
        assert reasoning.startswith(split.reasoning.rstrip()), text[:length]


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\n{SUM}",
        f"[THINK]{SUM}",
        f"<|channel|>analysis<|message|>{SUM}",
        f"<|channel>thought\n{SUM}",
        f"<|START_THINKING|>{SUM}",
        f"<|begin_of_thought|>{SUM}",
        f"Here are my reasoning steps:\n{SUM}",
    ],
)
def test_reasoning_that_was_cut_off_is_no_answer(text: str) -> None:
    for growing in (False, True):
        split = split_reasoning(text, growing=growing)
        assert (split.reasoning, split.answer) == (SUM, "")
        assert split.thinking is growing


@pytest.mark.parametrize("reasoning", ["", "<think>hm</think>\n"])
@pytest.mark.parametrize(
    ("beginning", "shown"),
    [(" Paris", "Paris"), ("\n\nParis", "Paris"), ("    code", "    code"), ("", "")],
)
def test_space_before_an_answer_is_no_part_of_it_but_indentation_is(
    reasoning: str, beginning: str, shown: str
) -> None:
    stream = AnswerStream()
    parts = [stream.append(letter) for letter in reasoning + beginning]
    assert "".join([*parts, stream.append("", last=True)]) == shown


MARKS = ("<think>", "</think>", "<|end|>", "<|channel|>final<|message|>", "[THINK]", "[/THINK]")


@given(st.lists(st.sampled_from([*MARKS, "Z", "\n", " ", "<", "</think", ">", "`"]), max_size=12))
def test_only_marks_and_whitespace_are_dropped(words: list[str]) -> None:
    raw = "".join(words)
    for growing in (False, True):
        split = split_reasoning(raw, growing=growing)
        assert raw[split.start : split.end] == split.answer
        kept = "".join((split.reasoning + split.answer).split())
        assert len(kept) <= len(raw)
        assert kept.count("Z") == raw.count("Z")


@given(st.sampled_from(sorted(OUTPUTS)), st.integers(1, 9))
def test_a_stream_returns_only_the_answer(name: str, size: int) -> None:
    text, reasoning, answer = OUTPUTS[name]
    stream = AnswerStream()
    parts = [stream.append(text[at : at + size]) for at in range(0, len(text), size)]
    parts.append(stream.append("", last=True))
    assert "".join(parts).endswith(answer)
    if "".join(parts) != answer:
        assert reasoning, "the text before a closing without an opening was already returned"
    assert stream.split == split_reasoning(text)


class Tokens:
    """Words as tokens: control tokens have no bytes, and are only parsed with `special`."""

    fingerprint, size = "tokens", 100
    prompt_prefix: tuple[int, ...] = ()

    def __init__(self, controls: Mapping[str, int], words: str = "", stops: str = "") -> None:
        self.controls = dict(controls)
        self.words = {50 + n: word for n, word in enumerate(words.split(" "))}
        self.stops = frozenset(controls[one] for one in stops.split())

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return [self.controls[text]] if special and text in self.controls else [98, 99]

    def text(self, token: int) -> str:
        known = {number: text for text, number in self.controls.items()} | self.words
        return known.get(token, "")

    def piece(self, token: int) -> bytes:
        return b"" if token in self.controls.values() else self.text(token).encode()


def test_control_tokens_that_mark_reasoning_have_a_text_and_no_others() -> None:
    harmony = {"<|start|>": 1, "<|channel|>": 2, "<|message|>": 3, "<|end|>": 4, "<|return|>": 5}
    tokens = Tokens({**harmony, "<|call|>": 6}, "analysis hm", stops="<|return|>")
    piece = marked_piece(tokens)
    assert b"".join(map(piece, [2, 50, 3, 51, 4])) == b"<|channel|>analysis<|message|>hm<|end|>"
    assert piece(5) == piece(6) == b""


def test_a_control_token_of_another_use_stays_hidden() -> None:
    phi = Tokens({"<|end|>": 4, "<|assistant|>": 5})
    assert marked_piece(phi)(4) == b"", "it ends a message without channels"


def test_the_prompt_says_whether_the_output_begins_in_the_reasoning() -> None:
    tokens = Tokens({"<|im_start|>": 1, "[THINK]": 2, "<|END_THINKING|>": 3}, "<think> \n hi")
    assert prompt_opening(tokens, [1, 52, 50, 51]) == "<think>"
    assert prompt_opening(tokens, [1, 2]) == "[THINK]"
    assert prompt_opening(tokens, [50, 51, 3]) == prompt_opening(tokens, [52]) == ""


def test_an_opening_in_the_prompt_is_told_from_the_models_own() -> None:
    assert added_opening("<think>hm</think>", "hm</think>") == "<think>"
    assert added_opening("<think>hm</think>", "<think>hm</think>") == ""
    assert added_opening("40", "40") == ""


def test_reasoning_and_answer_are_read_as_one_text_without_marks() -> None:
    assert without_marks("<think>\nLight.\n</think>\n\nIt is blue.") == "Light.\n\nIt is blue."
    assert without_marks("Say `<think>` to think.") == "Say `<think>` to think."
