"""Calibration: from what drafters claim to what the target will accept, learnt from hindsight.

q(row) = P(the row's token is drawn | its parent was emitted): an online logistic over the features
of `engines.budget.selection`, learnt in small batches, with forgetting. The output does not depend
on the drafts, so every proposal, verified or not, is scored against the text that came; only
children of emitted tokens are labelled, since q is conditional on that. P of whole paths is
`engines.budget.acceptance_model`'s.

Owns the proposals that still wait for their labels, and what labels say until there are enough to
learn from. Knows no costs.

AdaGrad (Duchi, Hazan, Singer 2011): weights that are learnt online, each with steps of its own.

Owns the weights of one model and the squared gradients that size their steps. In plain Python: a
row is scored at each pass of the target, and for a few dozen weights NumPy's calls take longer.
Refuses to know what is estimated and what from.

How long a text follows a draft: from the product of q along a path to P that it is walked.

A product of estimates that are each right is not right itself: what makes a text leave its draft
touches all rows at once, and the paths chosen are those that were overrated. So a second online
logistic maps the product, the depth, and how far such promises held lately, to P. Learnt from every
proposal, verified or not.

Owns these few weights. Knows no drafters. In plain Python: for a dozen rows NumPy's calls cost
three times as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from engines.budget.selection import BASE, FEATURES, FIRST, PER_DRAFTER, Merged
from engines.draft_tree import NAMES, DraftTree, credited

LARGEST = 30.0
"""Weights beyond this were not learnt."""


class AdaGrad:
    """Weights and how they follow their gradients.

    Attributes:
        weights: the present ones, to be read only.
    """

    def __init__(
        self,
        prior: Sequence[float],
        *,
        rate: float,
        confidence: float,
        forget: float = 1.0,
        least: float = 0.0,
    ) -> None:
        """Begin with the weights `prior`.

        Args:
            rate: length of the steps.
            confidence: squared gradients the prior stands for.
            forget: decay of the squared gradients at each step.
            least: added to them at each step: where they decay, those of a weight without gradients
                would come to 0, and 0 ÷ 0 be its step.
        """
        self.weights = list(prior)
        self._squares = [confidence] * len(prior)
        self._rate = rate
        self._forget = forget
        self._least = least

    def step(self, gradient: Sequence[float]) -> None:
        """Go down the gradient of the loss, one number for each weight."""
        for index, slope in enumerate(gradient):
            square = self._squares[index] * self._forget + (slope * slope + self._least)
            self._squares[index] = square
            self.weights[index] -= self._rate * slope / sqrt(square)

    def state(self) -> dict[str, list[float]]:
        """What was learnt, as plain JSON values."""
        return {"weights": self.weights.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a saved `state`; one of another shape (an older version's) is left aside.

        Raises:
            ValueError: it is damaged.
        """
        if all(len(state.get(name, ())) == len(self.weights) for name in ("weights", "squares")):
            weights, squares = (list(map(float, state[name])) for name in ("weights", "squares"))
            if max(map(abs, weights)) > LARGEST or min(squares) <= 0.0:
                raise ValueError("weights that were never learnt")
            self.weights, self._squares = weights, squares


PATH_PRIOR = (-0.2, 0.7, -0.3, 0.35)
"""Weights of 1, the product's log odds, depth ÷ 10, and the log of the share of promises held;
about what was learnt from each of four workloads (greedy, sampled, and at temperature 1.5)."""
PATH_RATE = 0.3
"""AdaGrad's step."""
CONFIDENCE = 50.0
"""Squared gradients the prior stands for."""
CAUTION = 0.95
"""Decay, with each proposal, of the sums that tell how far promises held."""
FAITHLESS = 0.02
"""Least share of the promises that is ever thought to have held."""
SUREST = 0.999
"""Products are taken as no closer to certainty than this."""


class PathCalibration:
    """Estimates P of the paths of a draft whose rows' q are known."""

    def __init__(self) -> None:
        self._learner = AdaGrad(PATH_PRIOR, rate=PATH_RATE, confidence=CONFIDENCE)
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


RATE = 0.5
"""AdaGrad's step."""
BATCH = 16
"""Labels gathered before an update: the update's fixed cost is shared."""
FORGET = 0.999
"""Decay of the squared gradients at each update, so that the weights keep following the text."""
LEAST = 1e-12
"""Added to them, for a drafter that is never there."""
DECAY = 0.9995
"""Decay of the hindsight counts at each consulted step (a memory of some 2,000 steps)."""
FAR = 700.0
"""Log odds beyond which a chance is 0, as doubles go."""
FOLLOWING = "following_"
"""Before the names of what `engines.budget.acceptance_model` learnt, in the saved state."""
PRIOR = {
    "prompt": (0.7, 0.5, 0.0, -1.5),
    "recycle": (-1.3, 0.25, 0.7, -0.5),
    "crest": (0.25, 0.9, 0.2, -1.5),
    "dense": (0.4, 0.45, -0.3, -1.7),
}
"""Weights of `PER_DRAFTER` before anything is learnt; about what was learnt from each of four
workloads (greedy, sampled, and at temperature 1.5), so that a first chat need not pay for them."""
UNKNOWN = (0.0, 0.7, 0.0, -0.5)
"""Those of other drafters: their own odds are believed, with some doubt."""
PRIOR_DEPTHS = (-0.3, -0.25, 0.1)
"""Those of the first three depths."""


@dataclass(slots=True)
class Waiting:
    """A proposal whose labels are still to come.

    Attributes:
        children: of each row, by token.
        expected: rows that the text was expected to walk.
        row: as far as the text has followed it. walked: the rows on the way there.
    """

    merged: Merged
    children: list[dict[int, int]]
    expected: float
    row: int
    walked: list[int]


class AcceptanceModel:
    """Estimates q for merged drafts and learns from what came."""

    def __init__(self) -> None:
        self._learner = AdaGrad(_prior(), rate=RATE, confidence=1.0, forget=FORGET, least=LEAST)
        self._following = PathCalibration()
        self._waiting: list[Waiting] = []
        self._gradient = [0.0] * FEATURES
        self._labels = 0
        self._hindsight = 0.0
        self._credited: dict[int, float] = {}

    def estimate(self, merged: Merged) -> list[float]:
        """Fill in the tree's probabilities (siblings sum to at most 1); returns P of each path."""
        tree = merged.tree
        chances = [_chance(score) for score in merged.scores(self._learner.weights)]
        sums = [0.0] * len(tree)
        for parent, chance in zip(tree.parents[1:], chances[1:], strict=True):
            sums[parent] += chance
        for row in range(1, len(tree)):
            chances[row] /= max(sums[tree.parents[row]], 1.0)
        chances[0] = 1.0
        tree.probabilities = chances
        return self._following.paths(tree)

    def expect(self, merged: Merged, paths: Sequence[float]) -> None:
        """Remember a proposal, with its estimated `paths`, until the text labels it."""
        expected = sum(paths) - paths[0]
        self._waiting.append(Waiting(merged, merged.tree.children(), expected, 0, []))

    def learn(self, tokens: Sequence[int]) -> None:
        """Score every waiting proposal against the `tokens` that came, and update the weights."""
        waiting = []
        for proposal in self._waiting:
            if self._follow(proposal, tokens):
                waiting.append(proposal)
            else:
                self._count(proposal)
        self._waiting = waiting
        if self._labels >= BATCH:
            self._learner.step(self._gradient)
            self._gradient, self._labels = [0.0] * FEATURES, 0

    def forget_waiting(self) -> None:
        """The answer ended or another begins: what still waits for its label never gets one."""
        self._waiting = []

    def would_accept(self) -> dict[str, float]:
        """By source, the share of tokens that proposals, verified or not, would have had accepted.

        A call that accepts a tokens yields a + 1; shares are of the tokens of such calls.
        """
        if not self._hindsight:
            return {}
        return {NAMES[bit]: count / self._hindsight for bit, count in self._credited.items()}

    def _follow(self, proposal: Waiting, tokens: Sequence[int]) -> bool:
        """Walk the proposal along `tokens`; whether it still waits for more."""
        for token in tokens:
            children = proposal.children[proposal.row]
            if not children:
                return False
            for key, row in children.items():
                self._label(proposal.merged, row, key == token)
            proposal.row = children.get(token, 0)
            if not proposal.row:
                return False
            proposal.walked.append(proposal.row)
        return bool(proposal.children[proposal.row])

    def _label(self, merged: Merged, row: int, came: bool) -> None:
        """Add what a row's label says to the gradient of the log loss at the present weights."""
        weights, gradient = self._learner.weights, self._gradient
        columns = merged.features(row)
        wrong = _chance(sum([weights[column] * value for column, value in columns])) - came
        for column, value in columns:
            gradient[column] += wrong * value
        self._labels += 1

    def _count(self, proposal: Waiting) -> None:
        """What a proposal promised, what came of it, and who is to be thanked."""
        tree = proposal.merged.tree
        self._following.learn(tree, proposal.walked, proposal.expected)
        self._hindsight = self._hindsight * DECAY + len(proposal.walked) + 1
        for bit in self._credited:
            self._credited[bit] *= DECAY
        for row in proposal.walked:
            bit = credited(tree.sources[row])
            self._credited[bit] = self._credited.get(bit, 0.0) + 1

    def state(self) -> dict[str, list[float]]:
        """What was learnt, as plain JSON values."""
        following = self._following.state()
        return self._learner.state() | {FOLLOWING + name: following[name] for name in following}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a saved `state`; one of another shape (an older version's) is left aside.

        Raises:
            ValueError: it is damaged.
        """
        self._learner.restore(state)
        own = len(FOLLOWING)
        self._following.restore(
            {name[own:]: kept for name, kept in state.items() if name.startswith(FOLLOWING)}
        )


def _chance(score: float) -> float:
    """The probability whose log odds are `score`."""
    return 1.0 / (1.0 + exp(min(-score, FAR)))


def _prior() -> list[float]:
    """The weights before anything is learnt."""
    weights = [0.0] * FEATURES
    for column, weight in zip(FIRST, PRIOR_DEPTHS, strict=True):
        weights[column] = weight
    for name, base in BASE.items():
        weights[base : base + len(PER_DRAFTER)] = PRIOR.get(name, UNKNOWN)
    return weights
