"""How much nearer passages are to one question, by meaning, than by chance.

Models differ in how alike they find texts that have nothing in common: .03 on average to one, .7 to
another. Their inner products are therefore counted in standard deviations above that of unrelated
texts, less what the nearest of so many passages has by chance. So they add up with log-likelihoods
of words (a convex combination of scores: Bruch, Gai and Ingber, "An Analysis of Fusion Functions
for Hybrid Retrieval", TOIS 2023).

Owns the scale. Refuses to know what nearness counts beside words (`reranking`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log

from datastores.passages.chunks import Passage
from engines.retrieval.dense import MISSING, DenseRetriever

CHANCE, GROWTH, FEW = 1.0, 0.3, 3
"""The nearest of `FEW` passages or less is so near by chance; of more, so much nearer for each
e-fold. With all-MiniLM-L6-v2, of 11, 68, 331 and 7,753 passages of tldr pages."""


def growth_of(searched: int) -> float:
    """E-folds from `FEW` passages to so many, by which the best score by chance grows."""
    return max(log(max(searched, 1) / FEW), 0.0)


class Nearness:
    """The passages of one retriever by their nearness to one question.

    Methods raise StoreError if the store cannot be read.
    """

    def __init__(
        self,
        retriever: DenseRetriever,
        question: str,
        searched: int,
        texts: Collection[bytes] | None = None,
    ) -> None:
        """Args:
            searched: how many passages are searched.
            texts: keys of the texts to be searched; None for all.

        Raises:
            ModelError: the model cannot encode the question.
        """
        self._retriever = retriever
        self._texts = texts
        self._vectors = retriever.encode([question])
        self._by_chance = CHANCE + GROWTH * growth_of(searched)

    def nearest(self, count: int) -> list[Passage]:
        """The nearest `count` passages, ties by id."""
        if self._texts is not None:
            return self._retriever.nearest_of(self._vectors[0], self._texts, count)
        (ranked,) = self._retriever.search_vectors(self._vectors, count)
        return [one.passage for one in ranked]

    def beyond_chance(self, passages: Sequence[int]) -> dict[int, float]:
        """By id, for those of `passages` that have a vector: standard deviations."""
        scale = self._retriever.embedder.unrelated
        scores = self._retriever.score_vector(self._vectors[0], passages)
        return {
            number: (score - scale.mean) / scale.deviation - self._by_chance
            for number, score in zip(passages, scores, strict=True)
            if score != MISSING
        }
