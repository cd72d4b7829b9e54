"""The dense retrievers over stored vectors: exact (EDR) and approximate (ADR in RaLMSpec)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from datastores.passages.chunks import Passage
from datastores.passages.embeddings import Embedder, Encoding, StoredVectors, Vectors
from datastores.passages.store import PassageStore
from engines.retrieval.late_interaction import AskedTokens, Matches
from engines.retrieval.protocol import ScoredPassage
from engines.retrieval.vectors import VectorIndex

Encode = Callable[[Sequence[str]], Sequence[Encoding]]
"""Encodes queries."""
MISSING = float("-inf")
"""The score of a passage that has no vector."""


class DenseRetriever:
    """Implements `engines.retrieval.protocol.Retriever`.

    A score is the inner product of unit vectors, so every passage with a vector matches every
    query. Methods raise StoreError if the store cannot be read.
    """

    def __init__(
        self,
        passages: PassageStore,
        embedder: Embedder,
        encode: Encode,
        *,
        approximate: bool = False,
    ) -> None:
        """Args:
        passages: over a connection that writes nothing.
        embedder: the model whose vectors are searched.
        encode: encodes queries with the same model.
        approximate: search an HNSW graph instead of all vectors.
        """
        self._passages = passages
        self._stored = StoredVectors(passages)
        self.embedder = embedder
        self._approximate = approximate
        self._version = -1
        self._index = VectorIndex(np.empty((0, embedder.width), np.float32), ())
        self._ids: frozenset[int] = frozenset()
        self._of_texts: tuple[frozenset[bytes], list[int]] | None = None
        self.encode = encode

    def __len__(self) -> int:
        return len(self._index)

    def update(self) -> None:
        """Load the vectors again if the store changed."""
        version = self._stored.version()
        if version == self._version:
            return
        ids, vectors = self._stored.load(self.embedder)
        self._ids = frozenset(ids.tolist())
        self._of_texts = None
        self._index = VectorIndex(vectors, ids.tolist(), approximate=self._approximate)
        self._version = version

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """For each query the nearest `limit` passages, ties by id; all if it is -1."""
        return self.search_vectors(self._vectors(queries), limit)

    def search_vectors(self, queries: Vectors, limit: int) -> list[list[ScoredPassage]]:
        """Like `search`, for encoded queries [n, width]."""
        found = self._index.search(queries, len(self) if limit < 0 else limit)
        ids = list(dict.fromkeys(number for ranked in found for number, _ in ranked))
        passages = {one.id: one for one in self._passages.passages(ids)}
        return [
            [ScoredPassage(passages[id], score) for id, score in ranked if id in passages]
            for ranked in found
        ]

    def nearest_of(self, query: Vectors, texts: Collection[bytes], limit: int) -> list[Passage]:
        """The `limit` passages of the texts with these keys nearest to an encoded query [width],
        ties by id."""
        chosen = frozenset(texts)
        if self._of_texts is None or self._of_texts[0] != chosen:
            ids = [number for number in self._passages.ids_of(chosen) if number in self._ids]
            self._of_texts = chosen, ids
        return self._passages.passages(self._index.nearest_of(query, self._of_texts[1], limit))

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); `MISSING` without a vector."""
        return [self.score_vector(vector, passages) for vector in self._vectors(queries)]

    def score_vector(self, query: Vectors, passages: Sequence[int]) -> list[float]:
        """Like `score`, for one encoded query [width]."""
        known = [number for number in passages if number in self._ids]
        scores = dict(zip(known, self._index.score(query, known), strict=True))
        return [scores.get(number, MISSING) for number in passages]

    def match_tokens(self, query: AskedTokens, passages: Sequence[int]) -> dict[int, Matches]:
        """Id → matches of the tokens of `query`, for those of `passages` that have a vector."""
        signs = self._stored.load_tokens(self.embedder, passages)
        return {number: query.matches(signs[number]) for number in passages if number in signs}

    def _vectors(self, queries: Sequence[str]) -> Vectors:
        vectors = [one.vector for one in self.encode(queries)]
        return np.array(vectors, np.float32).reshape(len(vectors), self.embedder.width)

    def close(self) -> None:
        """Close the store's connection."""
        self._passages.close()
