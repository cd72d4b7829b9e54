"""A draft model: what a smaller model would say next, as one chain (Leviathan et al. 2023).

The student is anything that keeps to the target protocol and shares the target's tokenizer. It
reads the context itself, in a cache of its own, and drafts token by token until its own estimate of
the path says that the target will hardly follow. With the target's sampler it draws with the
target's noise too, and so agrees more often at temperatures above zero.

Refuses to know which engine runs the student and who trained it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.draft_tree import STUDENT, DraftTree, root_only
from engines.sampler import Draw
from engines.step import Context, Step
from engines.target import Floats, Target

FLOOR = 0.1
"""Path probability, in the student's view, below which a token is not worth a pass of its own."""


def likeliest(row: Floats, position: int, context: Sequence[int]) -> int:
    """The draw of a greedy student."""
    return int(row.argmax())


class StudentDrafter:
    """A drafter that runs a model.

    Attributes:
        model: the student; one that has learnt more may take its place between two answers.
    """

    name = "student"
    learns_from = 0

    def __init__(self, model: Target, stops: frozenset[int], draw: Draw = likeliest) -> None:
        """Draft with `model`, no further than a token of `stops`; `draw` chooses each token."""
        self.model = model
        self._stops = stops
        self._draw = draw

    def begin(self, context: Context) -> None:
        """Read what was said, but for the root."""
        if 1 < len(context.tokens) <= self.model.context_length:
            self._read(context.tokens[:-1])

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One chain of at most `limit` tokens; nothing where the student's context is full."""
        tree = root_only(context.root)
        limit = min(limit, self.model.context_length - len(context.tokens))
        if limit < 1:
            return tree
        row, said, path = self._read(context.tokens), list(context.tokens), 1.0
        while True:
            token = self._draw(row, len(said), said)
            chance = _probability(row, token)
            path *= chance
            if path < FLOOR:
                return tree
            tree.add(tree.drafted, token, STUDENT, chance)
            if tree.drafted == limit or token in self._stops:
                return tree
            row = self._append(token)
            said.append(token)

    def observe(self, step: Step) -> None:
        """Nothing to do: what was not accepted is dropped when the context is next read."""

    def _read(self, tokens: Sequence[int]) -> Floats:
        """Have the student's cache hold `tokens`; the logits of what follows them."""
        for _ in self.model.prefill(tokens):
            pass
        logits: Floats = self.model.last_row.logits[0]
        return logits

    def _append(self, token: int) -> Floats:
        logits: Floats = self.model.verify(root_only(token)).logits[0]
        self.model.commit([0])
        return logits


def _probability(row: Floats, token: int) -> float:
    """Of `token` under the softmax of a row of logits."""
    return float(1.0 / np.exp(row - row[token], dtype=np.float64).sum())
