"""The knowledge base protocol: ranks passages for the queries of an answer in progress.

A query is encoded once, for both the guess from the answer's cache and the verification against the
whole base, so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from datastores.passages.chunks import Chunk, Passage
from datastores.passages.embeddings import Encoding
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.excerpts import ParsedChunk, parse_chunks
from engines.retrieval.protocol import Retriever, ScoredPassage
from engines.retrieval.reranking import Reranker
from engines.retrieval.spellings import respelled
from engines.retrieval.translations import Translations

NO_MATCH = float("-inf")
"""The score of a passage that does not match the query at all."""
LEAD = 1.0
"""By how much another passage must score higher to replace the current one in
`RankedKnowledgeBase`. Scores are log-likelihood ratios, so it must explain the query e times as
well. Passages about one subject score alike: without it, the passage changed at .33 of 133 strides
of ten answers from 1,269 passages, half the time back to an earlier one, and at .15 with it; each
change reads a prompt again, which takes as long as twenty strides of a small model."""


@dataclass(frozen=True, slots=True)
class Query:
    """The last words of the answer.

    Attributes:
        encoding: their encoding; None if the base needs none.
        current: the passage that the words before the next ones were written under.
    """

    text: str
    encoding: Encoding | None = None
    current: Passage | None = None


class KnowledgeBase(Protocol):
    """Ranks the passages of one corpus.

    A score depends on the query and the passage alone: not on the other queries of a batch or the
    other passages ranked.
    """

    def encode(self, text: str, current: Passage | None) -> Query:
        """Encode `text` as a query; see `Query` for `current`."""
        ...

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """The up to `limit` best matching passages for each query, best first, ties by id.

        Thread-safe with respect to `score`.
        """
        ...

    def score(self, query: Query, passages: Sequence[Passage]) -> Sequence[float]:
        """The score of each of `passages`; `NO_MATCH` where it does not match."""
        ...


class TextKnowledgeBase:
    """A `KnowledgeBase` over a retriever that takes the query's words."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    def encode(self, text: str, current: Passage | None) -> Query:
        """See `KnowledgeBase.encode`; no encoding, and no preference for `current`."""
        return Query(text)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        return self._retriever.search([query.text for query in queries], limit)

    def score(self, query: Query, passages: Sequence[Passage]) -> list[float]:
        """See `KnowledgeBase.score`."""
        (scores,) = self._retriever.score([query.text], [one.id for one in passages])
        return [score or NO_MATCH for score in scores]


class RankedKnowledgeBase:
    """A `KnowledgeBase` that ranks by words and meaning, as passages are found for a question.

    The current passage is replaced only by one whose score leads by `LEAD`. A search parses some
    eighty candidates, most of which the queries of a batch share.

    Args:
        texts: keys of the texts to search; None for all.
        dense: adds the similarity of passages that have a vector; None to rank by words alone.
    """

    def __init__(
        self,
        retriever: Bm25Retriever,
        translations: Translations,
        texts: frozenset[bytes] | None = None,
        dense: DenseRetriever | None = None,
    ) -> None:
        self._retriever = retriever
        self._translations = translations
        self._texts = texts
        self._dense = dense
        self._cached = ChunkParser()

    def encode(self, text: str, current: Passage | None) -> Query:
        """See `KnowledgeBase.encode`."""
        text = respelled(text, self._retriever.frequency)
        return Query(text, self._dense.encode([text])[0] if self._dense else None, current)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        parser = ChunkParser()
        return [self._search(query, limit, parser) for query in queries]

    def _search(self, query: Query, limit: int, parser: ChunkParser) -> list[ScoredPassage]:
        reranker, current = self._reranker(query, parser), query.current
        found = reranker.search(limit)
        if current is not None:
            (score,) = reranker.score([current])
            others = [one for one in found if one.passage.id != current.id]
            found = [*others, ScoredPassage(current, score + LEAD)] if score else others
            found.sort(key=lambda one: (-one.score, one.passage.id))
        return found[:limit]

    def score(self, query: Query, passages: Sequence[Passage]) -> list[float]:
        """See `KnowledgeBase.score`."""
        scores = self._reranker(query, self._cached).score(passages)
        self._cached.keep([one.chunk for one in passages])
        leads = [LEAD * (one == query.current) for one in passages]
        return [
            score + lead if score else NO_MATCH for score, lead in zip(scores, leads, strict=True)
        ]

    def _reranker(self, query: Query, parser: ChunkParser) -> Reranker:
        return Reranker(
            self._retriever,
            self._translations,
            query.text,
            self._texts,
            dense=self._dense,
            encoding=query.encoding,
            parse=parser.parse,
        )


class ChunkParser:
    """Parses each chunk once."""

    def __init__(self) -> None:
        self._parsed: dict[Chunk, ParsedChunk] = {}

    def parse(self, chunks: Sequence[Chunk]) -> list[ParsedChunk]:
        """As `parse_chunks`."""
        new = [one for one in dict.fromkeys(chunks) if one not in self._parsed]
        self._parsed.update(zip(new, parse_chunks(new), strict=True))
        return [self._parsed[one] for one in chunks]

    def keep(self, chunks: Sequence[Chunk]) -> None:
        """Forget all chunks but these."""
        self._parsed = {one: self._parsed[one] for one in chunks}
