"""When a dense index gets a projection: the first one soon, another when the first is outgrown.

Owns the moments of all states that were ever seen, in memory and, now and then, on disk. Refuses to
know which states have keys and what becomes of a new projection (`datastores.dense_book`).
"""

from __future__ import annotations

from typing import NamedTuple

from datastores.dense import DenseStore
from datastores.dense_codec import Projection, explained, fit
from datastores.dense_generations import Generation
from datastores.dense_moments import Floats

FIRST = 256
"""States the first projection is fitted to: four times the components. On the embedded model its
drafts are as good as those of one fitted to 20,000 (3.09 against 3.10 tokens per call)."""
GROWTH = 4
"""A refit is considered when there are so many times the states that were last judged by…"""
OUTGROWN = 0.9
"""…and made when the old projection keeps less than this share of what a new one would keep."""
LEAST, SHARE = 256, 8
"""Moments are written again after so many states, and one more for every so many they describe:
for states of 4096 numbers they are 17 MB."""


class Fitted(NamedTuple):
    """A projection, how many states it was fitted to, and the share of their variance it keeps."""

    projection: Projection
    states: int
    explained: float


class Fitting:
    """What is known of the states of one model, and the projection that asks for.

    `add` and `keep` raise StoreError where the disk fails; what was added is counted even then.
    """

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._moments = store.moments()
        self._kept = self._moments.count
        self._judged = 0

    @property
    def states(self) -> int:
        """States seen."""
        return self._moments.count

    def add(self, states: Floats) -> None:
        """Count in float32 [n, width], each state once, whatever generations it gets a key in."""
        self._moments.add(states)
        if self.states > self._kept + max(LEAST, self._kept // SHARE):
            self.keep()

    def keep(self) -> None:
        """Write the moments if they have changed."""
        if self.states > self._kept:
            self._store.keep_moments(self._moments)
            self._kept = self.states

    def better(self, serving: Generation | None) -> Fitted | None:
        """What should take the place of `serving`; None while that will do, or is not looked at."""
        due = GROWTH * max(serving.states, self._judged) if serving else FIRST
        if self.states < due:
            return None
        projection = fit(self._moments)
        self._judged = self.states
        fitted = Fitted(projection, self.states, explained(projection, self._moments))
        if serving is None:
            return fitted
        if explained(serving.projection, self._moments) < OUTGROWN * fitted.explained:
            return fitted
        self._store.generations.confirm(serving, self.states)
        return None
