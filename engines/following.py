"""How long a text follows a draft: from the product of q along a path to P that it is walked.

A product of estimates that are each right is not right itself: what makes a text leave its draft
touches all rows at once, and the paths chosen are those that were overrated. So a second online
logistic maps the product, the depth, and how far such promises held lately, to P. Learnt from every
proposal, verified or not.

Owns these few weights. Knows no drafters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engines.merge import Matrix
from engines.tree import DraftTree

Column = NDArray[np.float64]

PRIOR = (-0.2, 0.7, -0.3, 0.35)
"""Weights of 1, the product's log odds, depth ÷ 10, and the log of the share of promises held;
about what was learnt from each of four workloads (greedy, sampled, and at temperature 1.5)."""
RATE = 0.3
"""AdaGrad's step."""
CONFIDENCE = 50.0
"""Squared gradients the prior stands for."""
CAUTION = 0.95
"""Decay, with each proposal, of the sums that tell how far promises held."""
SUREST = 0.999
"""Products are taken as no closer to certainty than this."""


class Following:
    """Estimates P of the paths of a draft whose rows' q are known."""

    def __init__(self) -> None:
        self._weights = np.array(PRIOR)
        self._squares = np.full(len(PRIOR), CONFIDENCE)
        self._promised = self._held = 2.0

    def paths(self, tree: DraftTree) -> list[float]:
        """P of each row's path, never more than its parent's; 1 for the root."""
        chances: list[float] = _sigmoid(self._describe(tree) @ self._weights).tolist()
        chances[0] = 1.0
        for row in range(1, len(tree)):
            chances[row] = min(chances[row], chances[tree.parents[row]])
        return chances

    def learn(self, tree: DraftTree, walked: Sequence[int], promised: float) -> None:
        """The text walked the rows `walked` of a draft of which `promised` rows were expected."""
        if len(tree) == 1:
            return
        features = self._describe(tree)[1:]
        labels = np.zeros(len(tree))
        labels[list(walked)] = 1.0
        gradient = (_sigmoid(features @ self._weights) - labels[1:]) @ features
        self._squares += gradient * gradient
        self._weights -= RATE * gradient / np.sqrt(self._squares)
        self._promised = self._promised * CAUTION + promised
        self._held = min(self._held * CAUTION + len(walked), self._promised)

    def _describe(self, tree: DraftTree) -> Matrix:
        """Features of every row, the root's included."""
        products = tree.probabilities.copy()
        for row in range(1, len(tree)):
            products[row] *= products[tree.parents[row]]
        chances = np.array(products).clip(1.0 - SUREST, SUREST)
        features = np.empty((len(tree), len(PRIOR)))
        features[:, 0] = 1.0
        features[:, 1] = np.log(chances / (1.0 - chances))
        features[:, 2] = tree.depths()
        features[:, 2] *= 0.1
        features[:, 3] = np.log(self._held / self._promised)
        return features

    def state(self) -> dict[str, list[float]]:
        """What was learnt, as plain JSON values."""
        return {"weights": self._weights.tolist(), "squares": self._squares.tolist()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a saved `state`; one of another shape is left aside."""
        if all(len(state.get(name, ())) == len(PRIOR) for name in ("weights", "squares")):
            self._weights = np.array(state["weights"], dtype=np.float64)
            self._squares = np.array(state["squares"], dtype=np.float64)


def _sigmoid(odds: Column) -> Column:
    chances: Column = 1.0 / (1.0 + np.exp(-odds))
    return chances
