"""Late interaction: how well a passage's tokens match those of a question.

The vector of a passage averages all that it says, so that a note on five matters is near to no
question about one of them. Here every token of the question looks for the passage's most similar
token (MaxSim: Khattab and Zaharia, "ColBERT", SIGIR 2020, section 3.3). The states are those of an
embedding model that was not trained for it; a passage's are known by their signs alone.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from datastores.passages.embeddings import Signs, Vectors

STEPS = 127
"""Steps of a question's states to each side of zero. Sums of integers below 2^24 are exact in
single precision, whatever their order, so that a passage has the same score everywhere."""


class AskedTokens:
    """The tokens of a question, whose `states` are float32 [tokens, width]."""

    def __init__(self, states: Vectors) -> None:
        largest = float(np.abs(states).max(initial=1e-9))
        self._steps = np.rint(states * (STEPS / largest)).astype(np.float32)
        self._sums = self._steps.sum(axis=1, dtype=np.float32)
        tokens, width = states.shape
        self._scale: float = largest / (STEPS * sqrt(width) * max(tokens, 1))

    def similarity(self, passage: Signs) -> float:
        """The mean, over the question's tokens, of the largest cosine with a token of `passage`
        [tokens, bytes]; 0.0 if either has no tokens."""
        if not len(passage) or not len(self._steps):
            return 0.0
        ones = np.unpackbits(passage, axis=1, count=self._steps.shape[1]).astype(np.float32)
        products = 2 * (self._steps @ ones.T).max(axis=1) - self._sums
        return float(products.sum(dtype=np.float64)) * self._scale
