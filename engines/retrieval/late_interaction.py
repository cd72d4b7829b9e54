"""Late interaction: how well a passage's tokens match those of a question.

The vector of a passage averages all that it says, so that a note on five matters is near to no
question about one of them. Here every token of the question looks for the passage's most similar
token (MaxSim: Khattab and Zaharia, "ColBERT", SIGIR 2020, section 3.3). The states are those of an
embedding model that was not trained for it; a passage's are known by their signs alone. Unlike in
ColBERT, a passage that matches all tokens somewhat is better than one that matches some of them
well and others not at all: it may be about another thing of the same kind.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from datastores.passages.embeddings import Signs, Vectors

Matches = NDArray[np.float64]
"""Of each token of a question, the largest cosine with a token of a passage [tokens]."""

STEPS = 127
"""Steps of a question's states to each side of zero. Sums of integers below 2^24 are exact in
single precision, whatever their order, so that a passage has the same score everywhere."""

UNEVENNESS = 0.75
"""Standard deviations, over the question's tokens, that are subtracted from the mean of their
matches.

Of the development questions of `reranking.TOKEN_WEIGHT` (which is 7 here) the right passage ranks
first, and among the first three, with 0, .25, .5, .75 and 1: .482 and .693, .493 and .701, .507 and
.708, .518 and .702, .522 and .701; in each of the four corpora more are first. A soft minimum gains
.505 to .512, the mean logarithm .495, the mean absolute deviation .514. With a soft minimum,
matches in windows of 24 to 96 tokens, the other passages of a document, and the question's tokens
without those that begin and end it gain nothing; nor do tokens weighted by how much their matches
differ between passages."""


class AskedTokens:
    """The tokens of a question, whose `states` are float32 [tokens, width]."""

    def __init__(self, states: Vectors) -> None:
        largest = float(np.abs(states).max(initial=1e-9))
        self._steps = np.rint(states * (STEPS / largest)).astype(np.float32)
        self._sums = self._steps.sum(axis=1, dtype=np.float32)
        width = states.shape[1]
        self._scale: float = largest / (STEPS * sqrt(width))

    def matches(self, passage: Signs) -> Matches:
        """The matches of the question's tokens in `passage` [tokens, bytes]; zeros if it has
        none."""
        if not len(passage) or not len(self._steps):
            return np.zeros(len(self._steps))
        ones = np.unpackbits(passage, axis=1, count=self._steps.shape[1]).astype(np.float32)
        products = 2 * (self._steps @ ones.T).max(axis=1) - self._sums
        matches: Matches = products.astype(np.float64) * self._scale
        return matches


def similarity(matches: Matches) -> Matches:
    """How well and how evenly a question is matched, by its `matches` [..., tokens]: [...]."""
    if not matches.shape[-1]:
        return np.zeros(matches.shape[:-1])
    spread: Matches = matches.std(axis=-1)
    mean: Matches = matches.mean(axis=-1)
    return mean - UNEVENNESS * spread
