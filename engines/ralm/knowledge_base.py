"""The knowledge base protocol: what answers the queries of an answer in progress.

A query is encoded once, when its words are known, and then both guessed for from the request's
cache and verified against the whole base, so that the two cannot disagree about what was asked.
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
"""The score of a passage that does not answer the query at all."""


@dataclass(frozen=True, slots=True)
class Query:
    """The last words of the answer, and for dense retrievers their encoding, float32 [width]."""

    text: str
    vector: Floats | None = None


class KnowledgeBase(Protocol):
    """Ranks the passages of one corpus.

    A passage's score depends on the query and the passage alone: not on the other queries of a
    batch, and not on whether the whole corpus or some passages are ranked.
    """

    def encode(self, text: str) -> Query:
        """`text` as a query."""
        ...

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """For each query the best `limit` passages that match, best first, ties by id.

        May be called from another thread, while `score` is.
        """
        ...

    def score(self, query: Query, passages: Sequence[int]) -> Sequence[float]:
        """The score of each of `passages` (ids); `NO_MATCH` where it does not match."""
        ...


class TextKnowledgeBase:
    """A retriever over the words of a query, as a `KnowledgeBase`."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    def encode(self, text: str) -> Query:
        """The words alone."""
        return Query(text)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        return self._retriever.search([query.text for query in queries], limit)

    def score(self, query: Query, passages: Sequence[int]) -> list[float]:
        """See `KnowledgeBase.score`."""
        (scores,) = self._retriever.score([query.text], passages)
        return [score or NO_MATCH for score in scores]


class VectorKnowledgeBase:
    """A retriever by vectors, as a `KnowledgeBase`: a query is encoded once."""

    def __init__(self, retriever: DenseRetriever) -> None:
        self._retriever = retriever

    def encode(self, text: str) -> Query:
        """The words and their vector."""
        return Query(text, self._retriever.encode([text])[0])

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        vectors = [query.vector for query in queries if query.vector is not None]
        return self._retriever.search_vectors(np.stack(vectors), limit)

    def score(self, query: Query, passages: Sequence[int]) -> list[float]:
        """See `KnowledgeBase.score`."""
        assert query.vector is not None, "a query has its vector from `encode`"
        return self._retriever.score_vector(query.vector, passages)
