"""Calibration: from what drafters claim to what the target will accept, learnt from hindsight.

q(row) = P(the row's token is drawn | its parent was emitted): an online logistic over the features
of `engines.merge`, learnt in small batches, with forgetting. The output does not depend on the
drafts, so every proposal, verified or not, is scored against the text that came; only children of
emitted tokens are labelled, since q is conditional on that. P of whole paths is
`engines.following`'s.

Owns the proposals that still wait for their labels, and what labels say until there are enough to
learn from. Knows no costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from engines.adagrad import AdaGrad
from engines.following import Following
from engines.merge import BASE, FEATURES, FIRST, PER_DRAFTER, Merged
from engines.sources import NAMES, credited

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
"""Before the names of what `engines.following` learnt, in the saved state."""
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


class Calibration:
    """Estimates q for merged drafts and learns from what came."""

    def __init__(self) -> None:
        self._learner = AdaGrad(_prior(), rate=RATE, confidence=1.0, forget=FORGET, least=LEAST)
        self._following = Following()
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
