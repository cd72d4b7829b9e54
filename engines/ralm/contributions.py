"""Which states contributed to an answer under KNN-LM, and how much.

A token that was drawn from both distributions came from the neighbours with the probability

    λ · p_neighbours(token) / p(token)

(Bayes' rule), which is divided among the neighbours that led to it in proportion to their weights.
Summed over an answer, that is the expected number of tokens that came from each state; what is
missing came from the model alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.flat_keys import Rows

CONTRIBUTING = 64
"""Number of nearest neighbours to a token among which its probability is divided: the others weigh
next to nothing."""

Weights = NDArray[np.float64]


class MixedRow(NamedTuple):
    """What n neighbours, nearest first, added to a row of logits.

    Attributes:
        rows: int64 [n], of the datastore.
        nearness: float64 [n], their weights.
        places: [n], index in `tokens` of the token that each led to.
        tokens: [t], the different tokens that they led to, ascending.
        log_shares: float64 [t], log of the probability that the token, if drawn, came from them.
    """

    rows: Rows
    nearness: Weights
    places: NDArray[np.int64]
    tokens: NDArray[np.int32]
    log_shares: Weights


NOT_MIXED = MixedRow(
    np.zeros(0, np.int64),
    np.zeros(0),
    np.zeros(0, np.int64),
    np.zeros(0, np.int32),
    np.zeros(0),
)


class Contributions:
    """The contributions of states to the tokens of one answer."""

    def __init__(self) -> None:
        self._rows = [NOT_MIXED.rows]
        self._weights = [NOT_MIXED.nearness]

    def add(self, mixed: MixedRow, token: int) -> None:
        """Add `token`, which was drawn from the row `mixed`."""
        place = int(np.searchsorted(mixed.tokens, token))
        if place == len(mixed.tokens) or mixed.tokens[place] != token:
            return
        led = np.flatnonzero(mixed.places == place)[:CONTRIBUTING]
        weights = mixed.nearness[led]
        self._rows.append(mixed.rows[led])
        self._weights.append(weights * (np.exp(mixed.log_shares[place]) / weights.sum()))

    def totals(self) -> tuple[Rows, Weights]:
        """The rows that contributed, ascending, and the expected number of tokens from each."""
        rows, places = np.unique(np.concatenate(self._rows), return_inverse=True)
        weights = np.zeros(len(rows))
        np.add.at(weights, places, np.concatenate(self._weights))
        return rows, weights
