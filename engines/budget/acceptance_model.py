"""Calibration: how likely drafted tokens are to be accepted, learned from past outcomes.

`AcceptanceModel` estimates q(row) = P(the row's token is drawn | its parent was emitted): an online
logistic regression over the features of `engines.budget.selection`, learned in small batches, with
forgetting. The output does not depend on the drafts, so every proposal, verified or not, is scored
against the emitted text; only children of emitted tokens are labelled, since q is conditional.

P that the text follows a path is the product of q along it. A second regression from that product
to P was worse: after an answer that repeated itself it accepted drafts of 44 tokens in texts
without a precedent. Steps are small compared with the priors, which come from real models: an
answer that copies a page has thousands of similar labels, which must not outweigh the priors.

The optimiser is AdaGrad (Duchi, Hazan, Singer 2011). It is plain Python: rows are scored at every
pass of the target, and for a few dozen weights and a dozen rows NumPy's calls take three times as
long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log1p, sqrt

from engines.budget.selection import (
    BASE,
    DEPTH_COLUMNS,
    DEPTH_SCALE,
    FEATURES,
    PER_DRAFTER,
    MergedDraft,
    log_odds,
)
from engines.step import Proposal

MAX_WEIGHT = 30.0
"""Saved weights beyond this are considered damaged."""

LEARNING_RATE = 0.3
"""AdaGrad's step size."""
PRIOR_SQUARES = 2.0
"""Initial sum of squared gradients: the weight of the priors."""
BATCH_LABELS = 16
"""Labels collected before an update, to share its fixed cost."""
SQUARES_DECAY = 0.999
"""Decay of the squared gradients at each update, so that the weights keep following the text."""
EPSILON = 1e-12
"""Added to the squared gradients, for drafters that are absent."""
MAX_LOG_ODDS = 700.0
"""Log odds below minus this are clamped, since exp would overflow a double."""
PRIORS = {
    "prompt": (0.0, 1.0, 0.0, -1.5),
    "recycle": (-1.3, 0.25, 0.7, -0.5),
    "crest": (0.25, 0.9, 0.2, -1.5),
    "suffix": (0.0, 1.0, 0.0, -1.5),
    "dense": (0.4, 0.45, -0.3, -1.7),
    "draft-model": (0.4, 1.0, 0.0, -2.0),
    "mtp": (0.4, 1.0, 0.0, -2.0),
    "head": (0.2, 0.9, 0.0, -1.7),
}
"""Initial weights of `PER_DRAFTER`: about what was learned from each of four workloads (greedy,
sampled, and at temperature 1.5), so that the first chat does not pay for learning them."""
DEFAULT_PRIOR = (0.0, 0.7, 0.0, -0.5)
"""Initial weights of other drafters: their own log odds, discounted."""


class AdaGrad:
    """Weights learned online, each with its own step size."""

    def __init__(
        self,
        prior: Sequence[float],
        *,
        rate: float,
        prior_squares: float,
        decay: float,
        epsilon: float,
    ) -> None:
        """Start with the weights `prior`.

        Args:
            prior_squares: initial sum of squared gradients.
            decay: factor of the squared gradients at each step.
            epsilon: added to them at each step: otherwise those of a weight without gradients would
                decay to 0, and its step would be 0 ÷ 0.
        """
        self.weights = list(prior)
        self._squares = [prior_squares] * len(prior)
        self._rate = rate
        self._decay = decay
        self._epsilon = epsilon

    def step(self, gradient: Sequence[float]) -> None:
        """Descend `gradient`, the loss's slope for each weight."""
        for index, slope in enumerate(gradient):
            square = self._squares[index] * self._decay + (slope * slope + self._epsilon)
            self._squares[index] = square
            self.weights[index] -= self._rate * slope / sqrt(square)

    def state(self) -> dict[str, list[float]]:
        """The weights and their squared gradients as plain JSON values."""
        return {"weights": self.weights.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from a saved `state`; one of another shape (an older version's) is ignored.

        Raises:
            ValueError: the state is damaged.
        """
        if all(len(state.get(name, ())) == len(self.weights) for name in ("weights", "squares")):
            weights, squares = (list(map(float, state[name])) for name in ("weights", "squares"))
            if max(map(abs, weights)) > MAX_WEIGHT or min(squares) <= 0.0:
                raise ValueError("weights out of range")
            self.weights, self._squares = weights, squares


@dataclass(slots=True)
class PendingProposal:
    """A proposal that is not fully labelled yet; `row` is the last one that the text reached."""

    merged: MergedDraft
    row: int


class AcceptanceModel:
    """Estimates q for merged drafts and learns from the emitted text."""

    def __init__(self) -> None:
        self._learner = AdaGrad(
            _prior_weights(),
            rate=LEARNING_RATE,
            prior_squares=PRIOR_SQUARES,
            decay=SQUARES_DECAY,
            epsilon=EPSILON,
        )
        self._pending: list[PendingProposal] = []
        self._gradient = [0.0] * FEATURES
        self._labels = 0

    def estimate(self, merged: MergedDraft) -> list[float]:
        """Fill in the tree's probabilities (siblings sum to at most 1); returns P of each path."""
        tree = merged.tree
        estimates = [_sigmoid(score) for score in merged.scores(self._learner.weights)]
        estimates[0] = 0.0
        sums = [0.0] * len(tree)
        for parent, estimate in zip(tree.parents, estimates, strict=True):
            sums[parent] += estimate
        if max(sums) > 1.0:
            estimates = [
                estimate / max(sums[parent], 1.0)
                for parent, estimate in zip(tree.parents, estimates, strict=True)
            ]
        estimates[0] = 1.0
        tree.probabilities = estimates
        paths = [1.0]
        for row in range(1, len(estimates)):
            paths.append(estimates[row] * paths[tree.parents[row]])
        return paths

    def best_first(self, proposal: Proposal, temperature: float) -> float:
        """q of the most probable first token of one drafter's `proposal`, ignoring the others; 0
        if it is empty."""
        tree, base, weights = proposal.tree, BASE[proposal.drafter], self._learner.weights
        shared = weights[0] + weights[1] * DEPTH_SCALE + weights[2] * temperature
        shared += weights[DEPTH_COLUMNS[0]] + weights[base]
        best = 0.0
        for parent, claimed, support in zip(
            tree.parents, tree.probabilities, tree.supports, strict=True
        ):
            if parent == 0:
                score = weights[base + 1] * log_odds(claimed) + weights[base + 2] * log1p(support)
                best = max(best, _sigmoid(shared + score))
        return best

    def add_pending(self, merged: MergedDraft) -> None:
        """Keep a proposal until the text labels it."""
        self._pending.append(PendingProposal(merged, 0))

    def learn(self, tokens: Sequence[int]) -> None:
        """Score every pending proposal against the emitted `tokens`, and update the weights."""
        if self._pending:
            self._pending = [one for one in self._pending if self._label_rows(one, tokens)]
        if self._labels >= BATCH_LABELS:
            self._learner.step(self._gradient)
            self._gradient, self._labels = [0.0] * FEATURES, 0

    def drop_pending(self) -> None:
        """Drop all proposals: the answer has ended, or another begins."""
        self._pending = []

    def _label_rows(self, proposal: PendingProposal, tokens: Sequence[int]) -> bool:
        """Label rows along `tokens`; returns whether some rows are still to be labelled."""
        for token in tokens:
            children = proposal.merged.children[proposal.row]
            if not children:
                return False
            for key, row in children.items():
                self._label(proposal.merged, row, key == token)
            proposal.row = children.get(token, 0)
            if not proposal.row:
                return False
        return bool(proposal.merged.proposers[proposal.row])

    def _label(self, merged: MergedDraft, row: int, accepted: bool) -> None:
        """Add one row to the gradient of the log loss at the present weights."""
        weights, gradient = self._learner.weights, self._gradient
        columns = merged.features(row)
        error = _sigmoid(sum([weights[column] * value for column, value in columns])) - accepted
        for column, value in columns:
            gradient[column] += error * value
        self._labels += 1

    def state(self) -> dict[str, list[float]]:
        """The weights as plain JSON values."""
        return self._learner.state()

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from a saved `state`; one of another shape (an older version's) is ignored.

        Raises:
            ValueError: the state is damaged.
        """
        self._learner.restore(state)


def _sigmoid(score: float) -> float:
    return 1.0 / (1.0 + exp(-score if score > -MAX_LOG_ODDS else MAX_LOG_ODDS))


def _prior_weights() -> list[float]:
    weights = [0.0] * FEATURES
    for name, base in BASE.items():
        weights[base : base + len(PER_DRAFTER)] = PRIORS.get(name, DEFAULT_PRIOR)
    return weights
