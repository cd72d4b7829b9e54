"""How long a text follows a draft: from the product of q along a path to P that it is walked.

A product of estimates that are each right is not right itself: what makes a text leave its draft
touches all rows at once, and the paths chosen are those that were overrated. So a second online
logistic maps the product, the depth, and how far such promises held lately, to P. Learnt from every
proposal, verified or not.

Owns these few weights. Knows no drafters. In plain Python: for a dozen rows NumPy's calls cost
three times as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp, log

from engines.adagrad import AdaGrad
from engines.tree import DraftTree

PRIOR = (-0.2, 0.7, -0.3, 0.35)
"""Weights of 1, the product's log odds, depth ÷ 10, and the log of the share of promises held;
about what was learnt from each of four workloads (greedy, sampled, and at temperature 1.5)."""
RATE = 0.3
"""AdaGrad's step."""
CONFIDENCE = 50.0
"""Squared gradients the prior stands for."""
CAUTION = 0.95
"""Decay, with each proposal, of the sums that tell how far promises held."""
FAITHLESS = 0.02
"""Least share of the promises that is ever thought to have held."""
SUREST = 0.999
"""Products are taken as no closer to certainty than this."""


class Following:
    """Estimates P of the paths of a draft whose rows' q are known."""

    def __init__(self) -> None:
        self._learner = AdaGrad(PRIOR, rate=RATE, confidence=CONFIDENCE)
        self._promised = self._held = 2.0

    def paths(self, tree: DraftTree) -> list[float]:
        """P of each row's path, never more than its parent's; 1 for the root."""
        odds, depths = _odds(tree), tree.depths()
        shift, slope, fall = self._line()
        paths = [1.0]
        for row in range(1, len(tree)):
            chance = 1.0 / (1.0 + exp(-(shift + slope * odds[row] + fall * depths[row])))
            paths.append(min(chance, paths[tree.parents[row]]))
        return paths

    def learn(self, tree: DraftTree, walked: Collection[int], promised: float) -> None:
        """The text walked the rows `walked` of a draft of which `promised` rows were expected."""
        if len(tree) == 1:
            return
        odds, depths = _odds(tree), tree.depths()
        shift, slope, fall = self._line()
        wrong = [0.0] * 3
        for row in range(1, len(tree)):
            chance = 1.0 / (1.0 + exp(-(shift + slope * odds[row] + fall * depths[row])))
            error = chance - (row in walked)
            wrong[0] += error
            wrong[1] += error * odds[row]
            wrong[2] += error * depths[row] * 0.1
        self._learner.step((*wrong, wrong[0] * self._doubt()))
        self._promised = self._promised * CAUTION + promised
        held = min(self._held * CAUTION + len(walked), self._promised)
        self._held = max(held, FAITHLESS * self._promised)

    def _line(self) -> tuple[float, float, float]:
        """Log odds of a path: at even odds of its product, by those odds, by depth."""
        constant, slope, depth, held = self._learner.weights
        return constant + held * self._doubt(), slope, depth * 0.1

    def _doubt(self) -> float:
        """The log of the share of promises that held lately."""
        return log(self._held / self._promised)

    def state(self) -> dict[str, list[float]]:
        """What was learnt, as plain JSON values."""
        return self._learner.state()

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a saved `state`; see `AdaGrad.restore`."""
        self._learner.restore(state)


def _odds(tree: DraftTree) -> list[float]:
    """Log odds of the product of q along the path of each row."""
    products = tree.probabilities.copy()
    odds = [0.0]
    for row in range(1, len(tree)):
        products[row] *= products[tree.parents[row]]
        chance = min(max(products[row], 1.0 - SUREST), SUREST)
        odds.append(log(chance / (1.0 - chance)))
    return odds
