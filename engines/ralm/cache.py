"""The speculative cache: passages retrieved for an answer, from which the next one is guessed.

Passages retrieved for one query are often the best for the next one. The cache ranks with the
metric of the knowledge base, so if it holds the best passage of all, it ranks that one first
(RaLMSpec, section 3 and figure 2).
"""

from __future__ import annotations

from collections.abc import Iterable

from datastores.passages.chunks import Passage
from engines.ralm.knowledge_base import NO_MATCH, KnowledgeBase, Query
from engines.retrieval.protocol import ScoredPassage


class SpeculativeCache:
    """The cache of one answer."""

    def __init__(self, base: KnowledgeBase) -> None:
        self._base = base
        self._passages: dict[int, Passage] = {}

    def __len__(self) -> int:
        return len(self._passages)

    def insert(self, found: Iterable[ScoredPassage]) -> None:
        """Add passages that the knowledge base returned."""
        for scored in found:
            self._passages[scored.passage.id] = scored.passage

    def guess(self, query: Query) -> Passage | None:
        """The best cached passage for `query`, ties by id; None if none matches."""
        ids = list(self._passages)
        scores = self._base.score(query, ids) if ids else ()
        ranked = ((-score, number) for score, number in zip(scores, ids, strict=True))
        loss, best = min(ranked, default=(-NO_MATCH, 0))
        return self._passages[best] if loss < -NO_MATCH else None
