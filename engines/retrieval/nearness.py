"""Embedding similarity of passages to a question, relative to what chance gives: of whole passages,
and of their tokens.

The mean similarity of unrelated texts differs between models: .03 for one, .7 for another. Inner
products are therefore measured in standard deviations above the mean of unrelated texts, less the
expected maximum over the number of passages searched. On this scale they can be added to
log-likelihoods of words (a convex combination of scores: Bruch, Gai and Ingber, "An Analysis of
Fusion Functions for Hybrid Retrieval", TOIS 2023).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log

from datastores.passages.chunks import Passage
from datastores.passages.embeddings import Encoding
from engines.retrieval.dense import MISSING, DenseRetriever
from engines.retrieval.late_interaction import AskedTokens, Matches, similarity

CHANCE, GROWTH, FEW = 1.0, 0.3, 3
"""Expected best similarity of up to `FEW` unrelated passages in standard deviations, and its growth
per e-fold of more passages. Fitted with all-MiniLM-L6-v2 to 11, 68, 331 and 7,753 passages of tldr
pages."""


def growth_of(searched: int) -> float:
    """E-folds from `FEW` to `searched` passages, with which the best score by chance grows."""
    return max(log(max(searched, 1) / FEW), 0.0)


class Nearness:
    """The similarity of one retriever's passages to one question.

    Methods raise StoreError if the store cannot be read.
    """

    def __init__(
        self,
        retriever: DenseRetriever,
        question: Encoding,
        searched: int,
        texts: Collection[bytes] | None = None,
    ) -> None:
        """Args:
        searched: number of passages searched.
        texts: keys of the texts to search; None for all.
        """
        self._retriever = retriever
        self._texts = texts
        self._question = question.vector
        self._tokens = AskedTokens(question.states)
        self._by_chance = CHANCE + GROWTH * growth_of(searched)

    def nearest(self, count: int) -> list[Passage]:
        """The nearest `count` passages, ties by id."""
        if self._texts is not None:
            return self._retriever.nearest_of(self._question, self._texts, count)
        (ranked,) = self._retriever.search_vectors(self._question[None], count)
        return [one.passage for one in ranked]

    def beyond_chance(self, passages: Sequence[int]) -> dict[int, float]:
        """Id → standard deviations beyond chance, for those of `passages` that have a vector."""
        scores = self._retriever.score_vector(self._question, passages)
        scale = self._retriever.embedder.unrelated
        return {
            number: (score - scale.mean) / scale.deviation - self._by_chance
            for number, score in zip(passages, scores, strict=True)
            if score != MISSING
        }

    def match_tokens(self, passages: Sequence[int]) -> dict[int, Matches]:
        """Id → matches of the question's tokens, for those of `passages` that have a vector."""
        return self._retriever.match_tokens(self._tokens, passages)

    def tokens_beyond_chance(self, matches: Matches) -> Matches:
        """The same as `beyond_chance`, by late interaction: of `matches` [..., tokens], [...]."""
        scale = self._retriever.embedder.unrelated_tokens
        return (similarity(matches) - scale.mean) / scale.deviation - self._by_chance
