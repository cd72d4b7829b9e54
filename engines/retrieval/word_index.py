"""BM25 in memory over stored passages: the sparse retriever (SR in RaLMSpec).

The index follows the store by differences; `inverted_index` ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from datastores.passages.store import PassageStore
from datastores.passages.word_counts import PassageWords, StoredWords
from engines.retrieval.inverted_index import SEGMENT_PASSAGES, InvertedIndex
from engines.retrieval.protocol import ScoredPassage


class WordIndex:
    """Implements `engines.retrieval.protocol.Retriever`.

    Methods raise StoreError if the store cannot be read. `search` and `score` may run concurrently.
    """

    def __init__(self, passages: PassageStore) -> None:
        """Args:
        passages: over a connection of its own.
        """
        self._passages = passages
        self._store = passages.store
        self._stored = StoredWords(passages)
        self._index = InvertedIndex()
        self._version = -1  # SQLite's data_version at the last update

    def close(self) -> None:
        """Close the store's connection."""
        self._passages.close()

    def __len__(self) -> int:
        return len(self._index)

    def update(self) -> bool:
        """Add and remove passages as in the store; returns whether there were any changes."""
        version = int(self._store.rows("PRAGMA data_version")[0]["data_version"])
        if version == self._version:
            return False
        rows = self._store.rows("SELECT id FROM chunks")
        present = np.sort(np.array([row["id"] for row in rows], np.int64))
        known = self._index.ids
        new, gone = np.setdiff1d(present, known), np.setdiff1d(known, present)
        changed = bool(len(new) or len(gone))
        if changed:
            rebuild = 4 * (len(new) + len(gone)) > len(present) or self._index.is_fragmented
            if rebuild:
                self._index.clear()
            else:
                self._index.remove(gone)
            self._index.add(self._parts((present if rebuild else new).tolist()))
        self._version = version
        return changed

    def _parts(self, ids: Sequence[int]) -> Iterator[PassageWords]:
        """The words of the passages `ids`, a segment at a time."""
        for start in range(0, len(ids), SEGMENT_PASSAGES):
            yield self._stored.load(ids[start : start + SEGMENT_PASSAGES])

    def within(self, texts: frozenset[bytes]) -> WordsOfTexts:
        """A retriever of the passages of these texts (keys), with the statistics of all texts."""
        rows = self._store.rows("SELECT id, text FROM chunks")
        ids = [row["id"] for row in rows if bytes(row["text"]) in texts]
        return WordsOfTexts(self, self._index.rows_of(np.array(ids, np.int64)))

    def search(
        self, queries: Sequence[str], limit: int, among: NDArray[np.bool_] | None = None
    ) -> list[list[ScoredPassage]]:
        """For each query the best `limit` passages that share a word with it; all if it is -1.

        Args:
            among: mask of the rows to search; None for all.
        """
        found = self._index.search(queries, limit, among)
        ids = list(dict.fromkeys(number for ranked in found for number, _ in ranked))
        passages = {one.id: one for one in self._passages.passages(ids)}
        return [
            [
                ScoredPassage(passages[number], score)
                for number, score in ranked
                if number in passages
            ]
            for ranked in found
        ]

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); 0.0 if they share no word."""
        return self._index.score(queries, passages)


class WordsOfTexts:
    """A `WordIndex` restricted to the passages of some texts. Implements `Retriever`."""

    def __init__(self, index: WordIndex, among: NDArray[np.bool_]) -> None:
        self._index = index
        self._among = among

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """See `WordIndex.search`."""
        return self._index.search(queries, limit, self._among)

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """See `WordIndex.score`."""
        return self._index.score(queries, passages)
