"""Answers of a model whose draw is restricted, drafted or plain."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.token_recycling import TokenRecycling
from engines.llama.model import LlamaModel
from engines.sampler import Constrain, Draw

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
        "people": {"type": "integer"},
    },
    "required": ["name", "size", "people"],
    "additionalProperties": False,
}


def answer(
    model: LlamaModel,
    constrain: Constrain,
    draw: Draw,
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
        draw,
        StopCriteria(model.vocabulary.stops, limit),
        constrain=constrain,
    )
    with closing(steps):
        for step in steps:
            tokens += step.tokens
            accepted += step.accepted
    return tokens, accepted
