"""Calls of tools in a model's text: every form, any fragments, hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.chat_template.tool_calls import MARKS, CallStream, WrittenCall, taker

TAKES = taker([{"function": {"name": name}} for name in ("look", "write_file")], {})
LOOK = WrittenCall("look", {"path": "a.py"})
WRITE = WrittenCall("write_file", {"text": 'a "</tool_call>" {[TOOL_CALLS]} é', "n": 1, "o": {}})


def hermes(*calls: WrittenCall) -> str:
    return "\n".join(
        f"<tool_call>\n{json.dumps({'name': one.name, 'arguments': one.arguments})}\n</tool_call>"
        for one in calls
    )


def llama(*calls: WrittenCall) -> str:
    objects = ({"name": one.name, "parameters": one.arguments} for one in calls)
    return "; ".join(map(json.dumps, objects))


def tagged_llama(*calls: WrittenCall) -> str:
    return f"<|python_tag|>{llama(*calls)}"


def fenced(*calls: WrittenCall) -> str:
    objects = ({"name": one.name, "arguments": one.arguments} for one in calls)
    return "```json\n" + "\n".join(json.dumps(one, indent=2) for one in objects) + "\n```"


def doubled(*calls: WrittenCall) -> str:
    objects = ({"name": one.name, "arguments": one.arguments} for one in calls)
    return "\n".join(f"{{{json.dumps(one)}}}" for one in objects)


def mistral(*calls: WrittenCall) -> str:
    objects = [{"name": one.name, "arguments": one.arguments, "id": "a1"} for one in calls]
    return f"[TOOL_CALLS] {json.dumps(objects)}"


def mistral_with_arguments(*calls: WrittenCall) -> str:
    return "".join(f"[TOOL_CALLS]{one.name}[ARGS]{json.dumps(one.arguments)}" for one in calls)


FORMS = (hermes, llama, fenced, doubled, tagged_llama, mistral, mistral_with_arguments)


def parsed(fragments: Sequence[str]) -> tuple[str, list[WrittenCall]]:
    """The text and the calls of an answer that arrives in fragments."""
    stream = CallStream(TAKES)
    text = "".join(map(stream.append, fragments)) + stream.append("", last=True)
    return text, stream.calls


def cut(text: str, places: Sequence[int]) -> list[str]:
    """`text` in fragments."""
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


@pytest.mark.parametrize("form", FORMS)
def test_calls_are_found_in_every_form(form: Callable[..., str]) -> None:
    assert parsed([form(LOOK)]) == ("", [LOOK])
    if form is not mistral_with_arguments:  # its marks separate calls, wherever they are
        assert parsed([form(LOOK, WRITE)]) == ("", [LOOK, WRITE])


@pytest.mark.parametrize("form", [hermes, tagged_llama, mistral, mistral_with_arguments])
def test_text_before_a_call_stays(form: Callable[..., str]) -> None:
    assert parsed([f"I look.\n\n{form(LOOK)}"]) == ("I look.", [LOOK])


def test_text_between_and_after_calls_stays() -> None:
    text = f"First:\n{hermes(LOOK)}\nThen:\n{hermes(LOOK)}\nDone.\n"
    assert parsed([text]) == ("First:\nThen:\nDone.", [LOOK, LOOK])


@pytest.mark.parametrize(
    "text",
    [
        "plain text\n",
        "  \n",
        "<tool_call>\n",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> after',
        '<tool_call>{"name": "look", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"a": ' + "9" * 5000 + "}}</tool_call>",
        '<tool_call>{"name": "look", "arguments": {}} more</tool_call>',
        '{"name": "Ada", "age": 36}',
        '{"name": "look", "parameters": {}} is a call',
        '{"answer": 42}',
        '{{"name": "look", "arguments": {}}',
        '{{"name": "look", "arguments": {}}} is a call',
        "{{ name }}",
        '```json\n{"name": "look", "arguments": {}}\n```\nThat is a call.',
        "```python\nprint()\n```",
        "```\n```",
        "``",
        "[TOOL_CALLS]",
        "[TOOL_CALLS] [1]",
        "[TOOL_CALLS]look[ARGS]{",
        "<|python_tag|>print(1)",
        "a < b and <tool",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    assert parsed([text]) == (text, [])
    assert parsed(list(text)) == (text, [])


def test_a_call_without_its_closing_mark_counts_at_the_end() -> None:
    assert parsed([hermes(LOOK).removesuffix("\n</tool_call>")]) == ("", [LOOK])


def test_text_that_cannot_become_a_call_is_not_held_back() -> None:
    stream = CallStream(TAKES)
    assert stream.append("A sentence") == "A sentence"
    assert stream.append(" and <b") == " and <b"
    assert stream.append(" <tool") == ""
    assert stream.append("box>") == " <toolbox>"
    stream = CallStream(TAKES)
    assert stream.append('{"answer') == '{"answer'
    stream = CallStream(TAKES)
    assert stream.append("```js") == ""
    assert stream.append("\nx") == "```js\nx"


def test_deep_and_long_texts_end() -> None:
    deep = "<tool_call>" + "[" * 100_000
    assert parsed([deep]) == (deep, [])
    many = "<tool_call>" * 2000 + "</tool_call>" * 2000
    assert parsed([many[at : at + 40] for at in range(0, len(many), 40)]) == (many, [])


PIECES = st.sampled_from(
    [
        *MARKS,
        hermes(LOOK),
        llama(LOOK),
        doubled(LOOK),
        mistral(LOOK),
        "{",
        "}",
        "`",
        "```json",
        fenced(LOOK),
        '"name"',
        "\n",
        " ",
        "x",
        "<",
        "[",
    ]
)


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_fragments_do_not_matter(pieces: list[str], places: list[int]) -> None:
    text = "".join(pieces)
    assert parsed(cut(text, places)) == parsed([text]) == parsed(list(text))


@given(st.text(max_size=60))
def test_text_without_calls_is_unchanged(text: str) -> None:
    assert parsed(list(text)) == (text, [])


@given(
    st.sampled_from(FORMS),
    st.dictionaries(
        st.text(max_size=5), st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    ),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_any_arguments_come_back(
    form: Callable[..., str], arguments: dict[str, str], places: list[int]
) -> None:
    call = WrittenCall("look", arguments)
    assert parsed(cut(form(call), places)) == ("", [call])
