"""A draft model: a smaller model's continuation, as one chain (Leviathan et al. 2023).

The student is anything that implements the target protocol and shares the target's tokenizer. It
reads the context in a cache of its own, and drafts token by token until the path becomes too
improbable by its own estimate. With the target's sampler it also draws with the target's noise, and
so agrees more often at temperatures above zero.

Refuses to know which engine runs the student and how it was trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.draft_tree import STUDENT, DraftTree, root_only
from engines.sampler import Draw
from engines.step import Context, Step
from engines.target import Floats, Target

MIN_PATH_PROBABILITY = 0.1
"""Path probability, by the student's estimate, below which a token is not worth another pass."""


def greedy_draw(row: Floats, position: int, context: Sequence[int]) -> int:
    """Draw the likeliest token."""
    return int(row.argmax())


class StudentDrafter:
    """A drafter that runs a model.

    Attributes:
        model: the student; may be replaced by a newer one between two answers.
    """

    name = "student"
    top_tokens_needed = 0

    def __init__(self, model: Target, stops: frozenset[int], draw: Draw = greedy_draw) -> None:
        """Draft with `model`, up to a token of `stops`; `draw` chooses each token."""
        self.model = model
        self._stops = stops
        self._draw = draw

    def begin(self, context: Context) -> None:
        """Read the context, except for the root."""
        if 1 < len(context.tokens) <= self.model.context_length:
            self._read(context.tokens[:-1])

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One chain of at most `limit` tokens; nothing if the student's context is full."""
        tree = root_only(context.root)
        limit = min(limit, self.model.context_length - len(context.tokens))
        if limit < 1:
            return tree
        row, tokens, path = self._read(context.tokens), list(context.tokens), 1.0
        while True:
            token = self._draw(row, len(tokens), tokens)
            probability = _probability(row, token)
            path *= probability
            if path < MIN_PATH_PROBABILITY:
                return tree
            tree.add(tree.drafted, token, STUDENT, probability)
            if tree.drafted == limit or token in self._stops:
                return tree
            row = self._append(token)
            tokens.append(token)

    def observe(self, step: Step) -> None:
        """Nothing to do: rejected tokens are dropped when the context is next read."""

    def _read(self, tokens: Sequence[int]) -> Floats:
        """Bring the student's cache to `tokens`; the logits of the next token."""
        for _ in self.model.prefill(tokens):
            pass
        logits: Floats = self.model.last_row.logits[0]
        return logits

    def _append(self, token: int) -> Floats:
        logits: Floats = self.model.verify(root_only(token)).logits[0]
        self.model.commit([0])
        return logits


def _probability(row: Floats, token: int) -> float:
    """Probability of `token` under the softmax of a row of logits."""
    return float(1.0 / np.exp(row - row[token], dtype=np.float64).sum())
