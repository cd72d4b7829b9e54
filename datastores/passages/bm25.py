"""BM25 over the passages, by SQLite's FTS5: the sparse retriever (SR in RaLMSpec).

FTS5 takes inserts and deletions without a rebuild, scores with the statistics of the whole store
even where rows are restricted, and needs no second copy of the text. Owns how a query becomes words
and how columns are weighted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from datastores.passages.protocol import ScoredPassage
from datastores.passages.store import INDEX, PassageStore, passage_of

HEADING_WEIGHT, CONTENT_WEIGHT = 2.0, 1.0
"""A word in a heading counts twice."""
MAX_QUERY_WORDS = 64
"""Later words of a query are ignored: a query is a question or 32 tokens, never a document."""

_WORD = re.compile(r"\w+")

_SEARCH = f"""
    SELECT chunks.*, -bm25({INDEX}, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
    FROM {INDEX} JOIN chunks ON chunks.id = {INDEX}.rowid
    WHERE {INDEX} MATCH ? ORDER BY score DESC, chunks.id LIMIT ?
"""
_SCORE = f"""
    SELECT rowid AS id, -bm25({INDEX}, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
    FROM {INDEX} WHERE {INDEX} MATCH ? AND rowid IN
"""


class Bm25Retriever:
    """Implements `datastores.passages.protocol.Retriever`.

    Methods raise StoreError if the store cannot be read.
    """

    def __init__(self, passages: PassageStore) -> None:
        self._passages = passages

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """For each query the best `limit` passages that share a word with it."""
        return [self._search(query, limit) for query in queries]

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); 0.0 if they share no word."""
        marks = ", ".join("?" * len(passages))
        scores = []
        for query in queries:
            words = match_expression(query)
            rows = (
                self._passages.store.rows(f"{_SCORE} ({marks})", (words, *passages))
                if words and passages
                else []
            )
            found = {row["id"]: float(row["score"]) for row in rows}
            scores.append([found.get(number, 0.0) for number in passages])
        return scores

    def _search(self, query: str, limit: int) -> list[ScoredPassage]:
        words = match_expression(query)
        rows = self._passages.store.rows(_SEARCH, (words, limit)) if words else []
        return [ScoredPassage(passage_of(row), float(row["score"])) for row in rows]


def match_expression(query: str) -> str:
    """`query` as an FTS5 expression that matches any of its words; empty if it has none.

    Words are quoted, so nothing in them is an operator.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(query))
    return " OR ".join(f'"{word}"' for word in list(words)[:MAX_QUERY_WORDS])
