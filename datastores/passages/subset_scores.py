"""BM25 of a few passages, with the statistics of the whole store: FTS5's own formula, in memory.

FTS5 restricted to given rows evaluates the query anew for each of them (5 ms a row over 7,754
passages, where a search of all takes 33 ms), which a speculative cache cannot afford. So the words
of a passage are counted once, by the tokenizer of the store's index, and scored here.

Owns the counts of the passages it was asked for. Refuses to know which passages those are and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

from datastores.passages.bm25 import CONTENT_WEIGHT, HEADING_WEIGHT, informative_words
from datastores.passages.store import INDEX, TOKENIZER, PassageStore
from datastores.storage.integrity import translate_errors

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""k1 and b of FTS5's `bm25`."""
MIN_RARITY = 1e-6
"""FTS5's weight of a word in more than half of all passages."""

_WEIGHTS = {"heading": HEADING_WEIGHT, "content": CONTENT_WEIGHT}
_TABLES = f"""
    CREATE VIRTUAL TABLE IF NOT EXISTS temp.some_texts
        USING fts5(heading, content, tokenize="{TOKENIZER}");
    CREATE VIRTUAL TABLE IF NOT EXISTS temp.words_of_some
        USING fts5vocab(temp, some_texts, instance);
    CREATE VIRTUAL TABLE IF NOT EXISTS temp.words_of_all USING fts5vocab(main, {INDEX}, row);
"""


class SubsetScorer:
    """Scores passages of one store, as `Bm25Retriever.search` does.

    Counts are those of the store when it was opened; for one answer that is close enough, since a
    score here is a guess that is verified.
    """

    def __init__(self, passages: PassageStore) -> None:
        """Args:
            passages: over a connection of its own, so that a score need not wait for a search.

        Raises:
            StoreError: the store cannot be read.
        """
        self._passages = passages
        self._store = passages.store
        self._counts: dict[int, tuple[dict[str, float], int]] = {}
        self._rarities: dict[str, float] = {}
        with translate_errors(self._store.path):
            self._store.db.conn.executescript(_TABLES)
        self._number = len(passages)
        total = self._store.rows("SELECT sum(cnt) AS words FROM words_of_all")[0]["words"] or 0
        self._mean_length = max(total / max(self._number, 1), 1e-9)

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); 0.0 if they share no word.

        Raises:
            StoreError: the store cannot be read.
        """
        self._count([number for number in passages if number not in self._counts])
        words = [self._stems(" ".join(informative_words(query))) for query in queries]
        return [[self._score(stems, number) for number in passages] for stems in words]

    def _score(self, stems: Counter[str], passage: int) -> float:
        counts, length = self._counts.get(passage, ({}, 0))
        norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / self._mean_length)
        return sum(
            times * self._rarity(stem) * counts[stem] * (SATURATION + 1) / (counts[stem] + norm)
            for stem, times in stems.items()
            if stem in counts
        )

    def _rarity(self, stem: str) -> float:
        """Inverse document frequency, as in FTS5."""
        if stem not in self._rarities:
            rows = self._store.rows("SELECT doc FROM words_of_all WHERE term = ?", (stem,))
            found = rows[0]["doc"] if rows else 0
            rarity = log((self._number - found + 0.5) / (found + 0.5))
            self._rarities[stem] = max(rarity, MIN_RARITY)
        return self._rarities[stem]

    def _count(self, passages: Sequence[int]) -> None:
        """Count the words of passages that are new here."""
        found = self._passages.passages(passages)
        texts = [(one.chunk.heading, one.chunk.content) for one in found]
        for passage, words in zip(found, self._words(texts), strict=True):
            weighted: dict[str, float] = {}
            for stem, column in words:
                weighted[stem] = weighted.get(stem, 0.0) + _WEIGHTS[column]
            self._counts[passage.id] = weighted, len(words)

    def _stems(self, text: str) -> Counter[str]:
        (words,) = self._words([("", text)])
        return Counter(stem for stem, _ in words)

    def _words(self, texts: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
        """The words of (heading, content) as the index has them, each with its column."""
        words: list[list[tuple[str, str]]] = [[] for _ in texts]
        with translate_errors(self._store.path):
            connection = self._store.db.conn
            connection.execute("DELETE FROM some_texts")
            connection.executemany(
                "INSERT INTO some_texts (rowid, heading, content) VALUES (?, ?, ?)",
                ((row, *text) for row, text in enumerate(texts)),
            )
        for found in self._store.rows("SELECT doc, term, col FROM words_of_some"):
            words[found["doc"]].append((found["term"], found["col"]))
        return words
