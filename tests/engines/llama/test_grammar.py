"""Answers in the form of a schema: valid, with drafts as without; hostile schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datastores.errors import InputError
from engines.chat_template.prompt_builder import Message
from engines.llama.grammar import MAX_DEPTH, Grammar, json_grammar
from engines.llama.model import LlamaModel
from engines.sampler import Sampling, make_sampler
from tests.engines.llama.constrained import CITY, answer

SCHEMAS: list[dict[str, Any]] = [
    CITY,
    {"type": "object"},
    {"type": "array", "items": CITY, "minItems": 2, "maxItems": 2},
    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    {"$defs": {"n": {"type": "number"}}, "type": "array", "items": {"$ref": "#/$defs/n"}},
]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(sorted(schema))[:30])
def test_drafts_obey_the_grammar_without_changing_the_answer(
    exact: LlamaModel, schema: dict[str, Any], temperature: float
) -> None:
    model, sampling = exact, Sampling(temperature=temperature, seed=5)
    plain, _ = answer(model, model.json_form(schema), make_sampler(sampling), drafted=False)
    drafted, _ = answer(model, model.json_form(schema), make_sampler(sampling), drafted=True)
    assert drafted == plain
    if plain[-1] in model.vocabulary.stops:
        value = json.loads(b"".join(map(model.vocabulary.piece, plain)))
        if schema == CITY:
            assert value["size"] in ("small", "large")
            assert isinstance(value["people"], int)


def test_drafts_are_accepted_under_a_grammar(model: LlamaModel) -> None:
    schema = {"type": "array", "items": {"const": "the same words"}, "minItems": 4, "maxItems": 4}
    tokens, accepted = answer(
        model, model.json_form(schema), make_sampler(Sampling(temperature=0.0)), drafted=True
    )
    assert json.loads(b"".join(map(model.vocabulary.piece, tokens))) == ["the same words"] * 4
    assert accepted > len(tokens) / 3


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
