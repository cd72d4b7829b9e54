"""Answers in the form of a schema or a call: valid, with drafts as without; hostile schemas."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from datastores.errors import InputError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message, Tool
from engines.chat_template.tool_calls import CALL_FORMS, CallForm, CallStream
from engines.decode import StopCriteria, decode
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.token_recycling import TokenRecycling
from engines.llama.grammar import MAX_DEPTH, Grammar, call_grammar, json_grammar
from engines.llama.model import LlamaModel, load
from engines.sampler import Constrain, Sampling, make_sampler
from tests.engines.conftest import EMBEDDED, THREADS

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
        "people": {"type": "integer"},
    },
    "required": ["name", "size", "people"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    CITY,
    {"type": "object"},
    {"type": "array", "items": CITY, "minItems": 2, "maxItems": 2},
    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    {"$defs": {"n": {"type": "number"}}, "type": "array", "items": {"$ref": "#/$defs/n"}},
]


@pytest.fixture(scope="module")
def exact() -> LlamaModel:
    """The embedded model without rounding differences: a grammar leaves it with tokens that are
    all improbable, and nearly the same."""
    return load(EMBEDDED, threads=THREADS, exact=True, context_length=512)


def answer(
    model: LlamaModel,
    constrain: Constrain,
    sampling: Sampling,
    *,
    drafted: bool,
    limit: int = 90,
) -> tuple[list[int], int]:
    """The tokens of an answer, and how many of them were drafted."""
    prompt = model.render(
        [Message("user", "List the files in a folder as JSON: " + json.dumps(CITY))]
    )
    for _ in model.target.prefill(prompt):
        pass
    tokens: list[int] = []
    accepted = 0
    steps = decode(
        model.target,
        [PromptLookup(), TokenRecycling()] if drafted else [],
        FixedBudget(4 if drafted else 0, CostModel(), AcceptanceModel()),
        make_sampler(sampling),
        StopCriteria(model.vocabulary.stops, limit),
        temperature=sampling.temperature,
        constrain=constrain,
    )
    with closing(steps):
        for step in steps:
            tokens += step.tokens
            accepted += step.accepted
    return tokens, accepted


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(sorted(schema))[:30])
def test_drafts_obey_the_grammar_without_changing_the_answer(
    exact: LlamaModel, schema: dict[str, Any], temperature: float
) -> None:
    model, sampling = exact, Sampling(temperature=temperature, seed=5)
    plain, _ = answer(model, model.json_form(schema), sampling, drafted=False)
    drafted, _ = answer(model, model.json_form(schema), sampling, drafted=True)
    assert drafted == plain
    if plain[-1] in model.vocabulary.stops:
        value = json.loads(b"".join(map(model.vocabulary.piece, plain)))
        if schema == CITY:
            assert value["size"] in ("small", "large")
            assert isinstance(value["people"], int)


def test_drafts_are_accepted_under_a_grammar(model: LlamaModel) -> None:
    schema = {"type": "array", "items": {"const": "the same words"}, "minItems": 4, "maxItems": 4}
    tokens, accepted = answer(
        model, model.json_form(schema), Sampling(temperature=0.0), drafted=True
    )
    assert json.loads(b"".join(map(model.vocabulary.piece, tokens))) == ["the same words"] * 4
    assert accepted > len(tokens) / 3


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
                sampling,
                drafted=drafted,
                limit=70,
            )[0]
            for drafted in (False, True)
        )
        assert drafted == plain
        if plain[-1] in exact.vocabulary.stops:
            name = one["function"]["name"]
            stream = CallStream([name])
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
    stream = CallStream(["none", "any"])
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


def test_the_state_follows_the_answer(model: LlamaModel) -> None:
    """It may be drawn again at an earlier place, and after another text."""
    grammar = Grammar(model.target.weights, json_grammar({"const": "ab"}))
    prompt = model.render([Message("user", "?")])
    for _ in model.target.prefill(prompt):
        pass
    row = model.target.last_row.logits[0].copy()
    draw = grammar.constrain(make_sampler(Sampling(temperature=0.0)))
    context, texts = list(prompt), []
    for _ in range(2):
        while (
            token := draw(row, len(context) - len(prompt), context)
        ) not in model.vocabulary.stops:
            context.append(token)
        texts.append(b"".join(map(model.vocabulary.piece, context[len(prompt) :])))
        del context[len(prompt) :]
    assert texts == [b'"ab"', b'"ab"']


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "pattern"),
        ({"type": "integer", "minimum": 3}, "minimum"),
        ({"not": {}}, "not"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 10**9}, "maxItems"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "https://example.org/schema.json"}, "cannot be used"),
        ({"$ref": "#/nowhere"}, "cannot be used"),
        ({"type": "nothing"}, "cannot be used"),
        ({"properties": {"a": True}}, "no object"),
        ({"properties": 3}, "no object"),
        ({"anyOf": [{}], "properties": {}}, "anyOf"),
        ({"type": "string", "title": "x" * 40_000}, "KiB"),
    ],
)
def test_what_a_grammar_would_not_obey_is_refused_by_name(
    schema: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named.replace("$", "")):
        json_grammar(schema)


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 1):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InputError, match="levels"):
        json_grammar(schema)
