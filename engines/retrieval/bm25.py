"""BM25 over the passages, by SQLite's FTS5: the sparse retriever (SR in RaLMSpec).

FTS5 takes inserts and deletions without a rebuild, scores with the statistics of the whole store
even where rows are restricted, and needs no second copy of the text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import log

from datastores.passages.store import INDEX, PassageStore, passage_of
from datastores.search_form import is_gram
from engines.retrieval.protocol import ScoredPassage
from engines.retrieval.question_words import (
    MIN_STATISTICS,
    STOP_WORDS,
    informative_words,
    split_words,
)
from engines.retrieval.spellings import characters_of_unheld

HEADING_WEIGHT, CONTENT_WEIGHT = 2.0, 1.0
"""A word in a heading counts twice."""
SATURATION, LENGTH_SHARE = 1.2, 0.75
"""BM25's k1 and b in FTS5."""
MIN_COVERAGE = 0.5
"""Share of a question's words, weighted by rarity, that a relevant passage contains.

On the tldr pages, this and the rules below find a relevant passage for .92 of 500 generated
questions on held-out pages, and none for .91 of 205 and .90 of 500 on other subjects, written by
hand (.94, .83 and .83 if two shared words suffice, and a question's only word anywhere)."""
MIN_SHARED_WORDS = 2
"""One shared word is a coincidence, unless it is the question's only one, and either in the heading
or in no other passage."""
SURE_WORDS = 3
"""Fewer shared words may be a coincidence: they need `MIN_COVERAGE_OF_TWO`, unless one of them is
in the heading."""
MIN_COVERAGE_OF_TWO = 0.7
RELEVANCE_BATCH = 8
"""Passages judged at once; few questions need more."""

_SEARCH = f"""
    WITH found AS (
        SELECT rowid AS id, -bm25({INDEX}, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
        FROM {INDEX} WHERE {INDEX} MATCH ? ORDER BY score DESC, id LIMIT ?
    )
    SELECT chunks.*, score FROM found JOIN chunks USING (id) ORDER BY score DESC, id
"""
"""Texts are read after ranking, since a question of common words matches most passages."""
_SEARCH_WITHIN = f"""
    WITH found AS (
        SELECT {INDEX}.rowid AS id, -bm25({INDEX}, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
        FROM {INDEX} CROSS JOIN chunks ON chunks.id = {INDEX}.rowid
        WHERE {INDEX} MATCH ? AND hex(text) IN (SELECT value FROM json_each(?))
        ORDER BY score DESC, id LIMIT ?
    )
    SELECT chunks.*, score FROM found JOIN chunks USING (id) ORDER BY score DESC, id
"""
_SCORE = f"""
    SELECT rowid AS id, -bm25({INDEX}, {HEADING_WEIGHT}, {CONTENT_WEIGHT}) AS score
    FROM {INDEX} WHERE {INDEX} MATCH ? AND +rowid IN
"""
"""The plus keeps SQLite from seeking each passage separately, which takes twenty times as long."""
_FREQUENCY = f"SELECT count(*) AS number FROM {INDEX} WHERE {INDEX} MATCH ?"


class Bm25Retriever:
    """Implements `engines.retrieval.protocol.Retriever`.

    Statistics are read once, so additions need a new retriever. Methods raise StoreError if the
    store cannot be read.
    """

    def __init__(self, passages: PassageStore) -> None:
        self._passages = passages
        self._frequencies: dict[str, int] = {}
        self._counts: dict[frozenset[bytes], int] = {}

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """For each query the best `limit` passages that share a word with it."""
        return [self.search_words(informative_words(query), limit) for query in queries]

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); 0.0 if they share no word."""
        marks = ", ".join("?" * len(passages))
        scores = []
        for query in queries:
            expression = any_of(informative_words(query))
            rows = (
                self._passages.store.rows(f"{_SCORE} ({marks})", (expression, *passages))
                if expression and passages
                else []
            )
            found = {row["id"]: float(row["score"]) for row in rows}
            scores.append([found.get(number, 0.0) for number in passages])
        return scores

    def search_words(
        self, words: Iterable[str], limit: int, texts: Collection[bytes] | None = None
    ) -> list[ScoredPassage]:
        """The best `limit` passages that contain one of `words`, best first; all if it is -1.

        Args:
            texts: keys of the texts to search; None for all.
        """
        expression = any_of(words)
        if not expression:
            return []
        if texts is None:
            rows = self._passages.store.rows(_SEARCH, (expression, limit))
        else:
            keys = json.dumps([key.hex().upper() for key in texts])
            rows = self._passages.store.rows(_SEARCH_WITHIN, (expression, keys, limit))
        return [ScoredPassage(passage_of(row), float(row["score"])) for row in rows]

    def relevant(
        self, query: str, ranked: Iterable[ScoredPassage], batch: int = RELEVANCE_BATCH
    ) -> Iterator[ScoredPassage]:
        """The passages of `ranked` that share enough of the query's rare words, in the same order.

        For a query of stop words alone ("hi", "how are you"), only passages whose heading is one of
        them are relevant ("how do I use make"). Words are looked up once for each `batch`.
        """
        words = informative_words(query)
        if STOP_WORDS.issuperset(words):
            yield from (one for one in ranked if one.passage.chunk.heading.lower() in words)
            return
        # A bigram in no passage spans two words; its characters count instead.
        characters = characters_of_unheld(words, self.frequency)
        words = [word for word in words if not is_gram(word) or self.frequency(word)]
        weights = [self.rarity(self.frequency(word)) for word in words]
        more = [self.rarity(self.frequency(character)) for character in characters]
        unique = self.rarity(1)
        waiting = iter(ranked)
        while words and (judged := list(islice(waiting, batch))):
            ids = [one.passage.id for one in judged]
            shared = [self.score([word], ids)[0] for word in words]
            for one, scores in zip(judged, zip(*shared, strict=True), strict=True):
                held = [weight for weight, score in zip(weights, scores, strict=True) if score]
                titled = not set(words).isdisjoint(split_words(one.passage.chunk.heading))
                sure = titled or (len(words) == 1 and weights[0] >= unique)
                with_more = [*held, *self._held(characters, one.passage.id)] if held else []
                if _is_enough(held, weights, sure=sure) or (
                    characters and _is_enough(with_more, [*weights, *more], sure=titled)
                ):
                    yield one

    def _held(self, words: Iterable[str], passage: int) -> list[float]:
        """The rarities of those of `words` that a passage contains."""
        held = [word for word in words if self.score([word], [passage])[0][0]]
        return [self.rarity(self.frequency(word)) for word in held]

    def __len__(self) -> int:
        """Number of passages."""
        return self._count

    def passages_of(self, texts: Collection[bytes]) -> int:
        """Number of passages of the texts with these keys."""
        chosen = frozenset(texts)
        if chosen not in self._counts:
            self._counts[chosen] = self._passages.count(chosen)
        return self._counts[chosen]

    @cached_property
    def _count(self) -> int:
        return len(self._passages)

    def frequency(self, word: str) -> int:
        """Number of passages that contain `word`."""
        if word not in self._frequencies:
            (row,) = self._passages.store.rows(_FREQUENCY, (any_of([word]),))
            self._frequencies[word] = int(row["number"])
        return self._frequencies[word]

    def rarity(self, frequency: int) -> float:
        """BM25's inverse document frequency of a word in `frequency` passages."""
        passages = max(MIN_STATISTICS, self._count)
        return log(1 + (passages - frequency + 0.5) / (frequency + 0.5))


def _is_enough(held: Sequence[float], weights: Sequence[float], *, sure: bool) -> bool:
    """Whether shared words of the weights `held` suffice for a question with `weights`.

    Args:
        sure: whether one of them is in the passage's heading, or in no other passage.
    """
    coverage = sum(held) / sum(weights)
    if len(held) < min(MIN_SHARED_WORDS, len(weights)):
        return False
    if sure or len(held) >= SURE_WORDS:
        return coverage >= MIN_COVERAGE
    return len(held) >= MIN_SHARED_WORDS and coverage >= MIN_COVERAGE_OF_TWO


def any_of(words: Iterable[str]) -> str:
    """An FTS5 expression that matches any of `words`, quoted; empty if there are none."""
    return " OR ".join(f'"{word}"' for word in words)
