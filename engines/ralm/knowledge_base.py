"""The knowledge base protocol: ranks passages for the queries of an answer in progress.

A query is encoded once, for both the guess from the answer's cache and the verification against the
whole base, so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engines.retrieval.dense import DenseRetriever
from engines.retrieval.protocol import Retriever, ScoredPassage
from engines.target import Floats

NO_MATCH = float("-inf")
"""The score of a passage that does not match the query at all."""


@dataclass(frozen=True, slots=True)
class Query:
    """The last words of the answer, and for dense retrievers their encoding, float32 [width]."""

    text: str
    vector: Floats | None = None


class KnowledgeBase(Protocol):
    """Ranks the passages of one corpus.

    A score depends on the query and the passage alone: not on the other queries of a batch or the
    other passages ranked.
    """

    def encode(self, text: str) -> Query:
        """Encode `text` as a query."""
        ...

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """The up to `limit` best matching passages for each query, best first, ties by id.

        Thread-safe with respect to `score`.
        """
        ...

    def score(self, query: Query, passages: Sequence[int]) -> Sequence[float]:
        """The score of each of `passages` (ids); `NO_MATCH` where it does not match."""
        ...


class TextKnowledgeBase:
    """A `KnowledgeBase` over a retriever that takes the query's words."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    def encode(self, text: str) -> Query:
        """See `KnowledgeBase.encode`; no vector."""
        return Query(text)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        return self._retriever.search([query.text for query in queries], limit)

    def score(self, query: Query, passages: Sequence[int]) -> list[float]:
        """See `KnowledgeBase.score`."""
        (scores,) = self._retriever.score([query.text], passages)
        return [score or NO_MATCH for score in scores]


class VectorKnowledgeBase:
    """A `KnowledgeBase` over a retriever that takes the query's vector."""

    def __init__(self, retriever: DenseRetriever) -> None:
        self._retriever = retriever

    def encode(self, text: str) -> Query:
        """See `KnowledgeBase.encode`."""
        return Query(text, self._retriever.encode([text])[0])

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        vectors = [query.vector for query in queries if query.vector is not None]
        return self._retriever.search_vectors(np.stack(vectors), limit)

    def score(self, query: Query, passages: Sequence[int]) -> list[float]:
        """See `KnowledgeBase.score`."""
        assert query.vector is not None, "a query has its vector from `encode`"
        return self._retriever.score_vector(query.vector, passages)
