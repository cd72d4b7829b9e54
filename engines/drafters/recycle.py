"""Token recycling: successors of each token from logits the target has already computed.

A table holds, for every token seen, the likeliest successors in the most recent forward pass that
evaluated it (Luo et al. 2024, Turning Trash into Treasure, section 3: an adjacency matrix of top-8
candidates). A tree grows from it best-first. It knows little, costs nothing and always has
something to say. The paper draws one fixed tree; here the kept probabilities decide its shape.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp

from engines.drafters.protocol import Context
from engines.sources import RECYCLE
from engines.step import Step
from engines.tree import DraftTree, root_only

FLOOR = 0.02
"""Path probability below which a row is not worth proposing."""


class TokenRecycling:
    """A drafter over the target's own leftovers; its table lives as long as the loaded model."""

    name = "recycle"
    learns_from = 8

    def __init__(self) -> None:
        self._successors: dict[int, list[tuple[float, int]]] = {}

    def begin(self, context: Context) -> None:
        """Nothing to do: the table speaks of tokens, not of one context."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A tree grown best-first by path probability."""
        tree = root_only(context.root)
        heap: list[tuple[float, int, int, float]] = []
        self._push(heap, context.root, 0, 1.0)
        while heap and len(tree) <= limit:
            negative, token, parent, probability = heappop(heap)
            row = tree.add(parent, token, RECYCLE, probability)
            self._push(heap, token, row, -negative)
        return tree

    def _push(
        self, heap: list[tuple[float, int, int, float]], token: int, row: int, path: float
    ) -> None:
        for probability, successor in self._successors.get(token, ()):
            if path * probability < FLOOR:
                break
            heappush(heap, (-path * probability, successor, row, probability))

    def observe(self, step: Step) -> None:
        """Keep the successors of every token whose logits this pass gave."""
        tokens = step.tree.tokens
        rows = zip(step.path, step.top_tokens, step.top_logits.tolist(), strict=True)
        for row, successors, logits in rows:
            if successors:
                weights = [exp(logit - logits[0]) for logit in logits]
                total = sum(weights)
                self._successors[tokens[row]] = [
                    (weight / total, successor)
                    for weight, successor in zip(weights, successors, strict=True)
                ]
