"""Calls that have to be made, and calls that the model begins by itself: with drafts as without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from datastores.errors import InputError
from engines.chat_template.prompt_builder import Message, Tool
from engines.chat_template.tool_calls import CALL_FORMS, CallForm, CallStream, taker
from engines.llama.call_grammar import FreeCalls, call_grammar, free_call_grammar
from engines.llama.grammar import Grammar
from engines.llama.model import LlamaModel
from engines.sampler import Draw, Sampling, make_sampler
from tests.engines.llama.constrained import CITY, answer


def tool(name: str, parameters: dict[str, Any]) -> Tool:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ITEM = {"$defs": {"size": {"enum": [1, 2]}}, "type": "object", "required": ["size", "of"]}
TOOLS = [
    tool("add.one", {**ITEM, "properties": {"size": {"$ref": "#/$defs/size"}, "of": CITY}}),
    tool(
        "name", {"$defs": {"size": {"const": "s"}}, "properties": {"a": {"$ref": "#/$defs/size"}}}
    ),
    tool("any", {"type": "object"}),
    tool("none", {"type": "object", "properties": {}}),
    tool("positive", {"type": "object", "properties": {"n": {"minimum": 1}}}),
]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("form", CALL_FORMS, ids=lambda form: form.mark or "bare")
def test_drafts_obey_calls_without_changing_them(
    exact: LlamaModel, form: CallForm, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, seed=7)
    for one in TOOLS:
        grammar = call_grammar(form, [one], many=False)
        plain, drafted = (
            answer(
                exact,
                Grammar(exact.target.weights, grammar).constrain,
                make_sampler(sampling),
                drafted=drafted,
                limit=70,
            )[0]
            for drafted in (False, True)
        )
        assert drafted == plain
        if plain[-1] in exact.vocabulary.stops:
            name = one["function"]["name"]
            stream = CallStream(taker([one], {}))
            assert not stream.append(
                b"".join(map(exact.vocabulary.piece, plain)).decode(), last=True
            )
            (call,) = stream.calls
            assert call.name == name
            if name == "add.one":
                assert call.arguments["size"] in (1, 2)
            if name == "name":
                assert call.arguments in ({}, {"a": "s"})


@pytest.mark.parametrize("form", CALL_FORMS, ids=lambda form: form.mark or "bare")
def test_several_calls_are_read_as_they_are_forced(model: LlamaModel, form: CallForm) -> None:
    one, other = (f"{name}{form.middle}{{}}" for name in ("none", "any"))
    text = f"{form.before}{one}{form.between}{other}{form.after}"
    stream = CallStream(taker(TOOLS, {}))
    assert not stream.append(text, last=True)
    assert [call.name for call in stream.calls] == ["none", "any"]
    for many in (True, False):
        grammar = Grammar(model.target.weights, call_grammar(form, TOOLS, many=many))
        tokens = model.vocabulary.encode(text)
        draw = grammar.constrain(lambda row, offset, context: int(row.argmax()))
        row = np.zeros(model.target.weights.vocabulary_size, np.float32)
        followed = 0
        for offset, token in enumerate(tokens):
            row[token] = 1.0
            followed += draw(row, offset, tokens[:offset]) == token
            row[token] = 0.0
            if followed <= offset:
                break
        assert (followed == len(tokens)) == many


def test_a_strict_tool_whose_schema_would_not_be_obeyed_is_refused() -> None:
    with pytest.raises(InputError, match=r"positive cannot be strict.*'minimum'"):
        call_grammar(CALL_FORMS[0], TOOLS, {"positive"})
    with pytest.raises(InputError, match="of an object"):
        call_grammar(CALL_FORMS[0], [tool("text", {"type": "string"})], {"text"})


def saying(model: LlamaModel, text: str, sampling: Sampling) -> Draw:
    """Draws the tokens of `text`, and then as the model would."""
    tokens, draw = model.vocabulary.encode(text), make_sampler(sampling)
    return lambda row, offset, context: (
        tokens[offset] if offset < len(tokens) else draw(row, offset, context)
    )


def free_calls(model: LlamaModel, form: CallForm, tools: list[Tool] = TOOLS) -> FreeCalls:
    grammar = Grammar(model.target.weights, free_call_grammar(form, tools))
    return FreeCalls(grammar, model.vocabulary, form, tools)


BEGUN = [
    (CALL_FORMS[0], "Sure {x}.\n<tool_call>"),
    (CALL_FORMS[0], '```json\n{\n  "name": "add.one"'),
    (CALL_FORMS[0], '{"name": "add.one"'),
    (CALL_FORMS[0], '{{"name": "add.one"'),
    (CALL_FORMS[0], "<think>\n<tool_call> or not?</think>\n\n<tool_call>"),
    (CALL_FORMS[1], "I look. [TOOL_CALLS]"),
    (CALL_FORMS[2], "[TOOL_CALLS]"),
    (CALL_FORMS[3], '\n{"name": "add.one",'),
]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("form", "begun"), BEGUN, ids=lambda one: str(one)[:24])
def test_a_call_that_was_begun_obeys_the_schema(
    exact: LlamaModel, form: CallForm, begun: str, temperature: float
) -> None:
    tools, sampling = TOOLS[:1], Sampling(temperature=temperature, seed=7)
    plain, drafted = (
        answer(
            exact,
            free_calls(exact, form, tools).constrain,
            saying(exact, begun, sampling),
            drafted=drafted,
        )[0]
        for drafted in (False, True)
    )
    assert drafted == plain
    text = b"".join(map(exact.vocabulary.piece, plain)).decode()
    assert text.startswith(begun)
    if plain[-1] in exact.vocabulary.stops:
        stream = CallStream(taker(tools, {}))
        stream.append(text.rpartition("</think>")[2], last=True)
        assert stream.calls
        for call in stream.calls:
            assert call.arguments["size"] in (1, 2)
            assert call.arguments["of"].keys() == set(CITY["required"])
    else:
        assert '"size":' in text, "the call was not restricted"


@pytest.mark.parametrize(
    "text",
    [
        'Write {"name": "add.one", "arguments": {"wrong": true}}.',
        '{"name": "Ada", "arguments": {"wrong": true}}',
        '```json\n{"wrong": true}\n```',
        "<think>\n<tool_call>{wrong</think>\n\nNo.",
        "a < b, {x} and <tool> and `y`",
    ],
)
def test_what_is_no_call_is_left_alone(model: LlamaModel, text: str) -> None:
    tokens = [*model.vocabulary.encode(text), min(model.vocabulary.stops)]
    prompt = model.render([Message("user", "?")])
    draw = free_calls(model, CALL_FORMS[0]).constrain(lambda row, offset, context: tokens[offset])
    row = np.zeros(model.target.weights.vocabulary_size, np.float32)
    for offset, token in enumerate(tokens):
        assert draw(row, offset, [*prompt, *tokens[:offset]]) == token


def test_a_call_is_followed_from_any_place_again(model: LlamaModel) -> None:
    """Other answers may follow, and an answer may be drawn again from an earlier place."""
    free, row = free_calls(model, CALL_FORMS[0]), np.zeros(model.target.weights.vocabulary_size)
    prompt = model.render([Message("user", "?")])
    wrong = model.vocabulary.encode("wrong")[0]
    draw = free.constrain(lambda row, offset, context: wrong if row[wrong] == 0 else 0)
    for text, obeys in (("<tool_call>", False), ("no call", True), ("<tool_call>\n{", False)):
        context = [*prompt, *model.vocabulary.encode(text)]
        drawn = draw(row.astype(np.float32), len(context) - len(prompt), context)
        assert (drawn == wrong) == obeys
