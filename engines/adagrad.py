"""AdaGrad (Duchi, Hazan, Singer 2011): weights that are learnt online, each with steps of its own.

Owns the weights of one model and the squared gradients that size their steps. In plain Python: a
row is scored at each pass of the target, and for a few dozen weights NumPy's calls take longer.
Refuses to know what is estimated and what from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

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
