"""BM25 in memory, the sparse retriever of the paper (SR): an inverted index for many successive
queries, and for scores of a few passages.

FTS5 evaluates every query separately: sixteen cost sixteen times one, and scoring a given passage
costs as much as a search. Here a word's contribution to each passage (its impact) is computed once
and cached, the queries of a batch, most of whose words recur, share their sums, and a batch is
divided among threads.

Impacts are integers, so that sums do not depend on order: a passage's score is the same in a batch,
alone, and among a few passages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log

import numpy as np
from numpy.typing import NDArray

from datastores.passages.word_counts import count_terms, key_of, keys_in
from datastores.search_form import index_form
from engines.retrieval.bm25 import CONTENT_WEIGHT, HEADING_WEIGHT, LENGTH_SHARE, SATURATION
from engines.retrieval.exact import in_parallel
from engines.retrieval.question_words import informative_words

MIN_RARITY = 1e-6
"""FTS5's minimum inverse document frequency, for words in more than half of all passages."""
UNIT = 1 << 20
"""Impact of a score of 1.0. Scores reach some hundreds and differ in the third digit."""
BLOCK = 256
"""Passages per block, whose best score is examined first."""
MAX_CACHED_WORDS = 1 << 14
"""Words whose impacts are cached."""

Integers = NDArray[np.int64]
Ranking = list[tuple[int, float]]
"""Rows of passages and their scores, best first, ties by row."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The words of some passages, by word.

    Attributes:
        keys: uint64 [words], ascending.
        starts: int64 [words + 1], offsets of each word's entries.
        rows: int32 [entries], rows of the passages that contain the word, ascending.
        counts: float32 [entries], counts of the word, weighted by column.
    """

    keys: NDArray[np.uint64]
    starts: Integers
    rows: NDArray[np.int32]
    counts: NDArray[np.float32]

    def entries(self, key: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The rows and counts of a word."""
        at = int(np.searchsorted(self.keys, np.uint64(key)))
        known = at < len(self.keys) and int(self.keys[at]) == key
        here = slice(*self.starts[at : at + 2].tolist()) if known else slice(0, 0)
        return self.rows[here], self.counts[here]


def count_words(texts: Sequence[tuple[str, str]]) -> tuple[Segment, Integers]:
    """The words of each (heading, content), in rows from 0, and the number of words of each."""
    found = count_terms([(index_form(heading), index_form(content)) for heading, content in texts])
    words = np.array([key_of(term) for _, term, _, _ in found], np.uint64)
    rows = np.array([row for row, _, _, _ in found], np.int32)
    counts = np.array([row[2:] for row in found], np.float32).reshape(-1, 2)
    lengths = np.bincount(rows, counts.sum(axis=1), len(texts)).astype(np.int64)
    order = np.lexsort((rows, words))
    keys, starts = np.unique(words[order], return_index=True)
    weighted = counts @ np.array([HEADING_WEIGHT, CONTENT_WEIGHT], np.float32)
    return Segment(keys, np.append(starts, len(order)), rows[order], weighted[order]), lengths


class InvertedIndex:
    """The words of passages, by word. `search` and `score` may run concurrently.

    Args:
        lengths: number of words of each row.
    """

    def __init__(self, segments: Sequence[Segment], lengths: Integers) -> None:
        self._segments = segments
        self._lengths = lengths
        self._mean = max(float(lengths.mean()), 1e-9) if len(lengths) else 1.0
        self._stems: dict[str, tuple[int, ...]] = {}
        self._impacts: dict[int, tuple[NDArray[np.int32], Integers]] = {}

    def __len__(self) -> int:
        return len(self._lengths)

    def search(self, queries: Sequence[str], limit: int) -> list[Ranking]:
        """For each query the best `limit` passages that share a word with it; all if it is -1."""

        def ranked(part: Sequence[Counter[int]]) -> list[Ranking]:
            return [self._best(totals, limit) for totals in self._totals(part)]

        return in_parallel(ranked, self._words(queries))

    def score(self, queries: Sequence[str], rows: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `rows`; 0.0 if they share no word."""
        # int32 like the segments' rows: with another type, searchsorted would convert all of them.
        wanted = np.array(rows, np.int32)
        return [self._score(stems, wanted) for stems in self._words(queries)]

    def _score(self, stems: Counter[int], wanted: NDArray[np.int32]) -> list[float]:
        totals = np.zeros(len(wanted), np.int64)
        for stem, times in stems.items():
            rows, impacts = self._impact(stem)
            if len(rows):
                at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
                totals += np.where(rows[at] == wanted, times * impacts[at], 0)
        scores: list[float] = (totals / UNIT).tolist()
        return scores

    def _totals(self, queries: Sequence[Counter[int]]) -> Iterator[Integers]:
        """The scores of all rows for each query, in one array that is updated between queries."""
        totals, before = np.zeros(len(self), np.int64), Counter[int]()
        for stems in queries:
            changed = Counter(stems)
            changed.subtract(before)
            if sum(map(bool, changed.values())) > len(stems):
                totals[:] = 0
                changed = stems
            for stem, times in changed.items():
                if times:
                    rows, impacts = self._impact(stem)
                    totals[rows] += times * impacts
            before = stems
            yield totals

    def _best(self, totals: Integers, limit: int) -> Ranking:
        """The best rows above zero and their scores."""
        threshold = 1
        blocks = len(totals) // BLOCK
        if 0 < limit <= blocks:
            # The limit-th best block maximum is a lower bound of the limit-th best row.
            best = totals[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
            threshold = max(threshold, int(np.partition(best, blocks - limit)[blocks - limit]))
        rows = np.flatnonzero(totals >= threshold)
        order = np.lexsort((rows, -totals[rows]))
        rows = rows[order if limit < 0 else order[:limit]]
        return list(zip(rows.tolist(), (totals[rows] / UNIT).tolist(), strict=True))

    def _impact(self, stem: int) -> tuple[NDArray[np.int32], Integers]:
        """The rows that contain `stem`, and its impact on each."""
        cached = self._impacts.get(stem)
        if cached is not None:
            return cached
        entries = [segment.entries(stem) for segment in self._segments]
        rows = np.concatenate([np.empty(0, np.int32), *(rows for rows, _ in entries)])
        counts = np.concatenate([np.empty(0, np.float32), *(counts for _, counts in entries)])
        counts = counts.astype(np.float64)
        rarity = max(log((len(self) - len(rows) + 0.5) / (len(rows) + 0.5)), MIN_RARITY)
        norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * self._lengths[rows] / self._mean)
        impacts = np.rint(UNIT * rarity * counts * (SATURATION + 1) / (counts + norm))
        if len(self._impacts) >= MAX_CACHED_WORDS:
            self._impacts = {}
        cached = self._impacts[stem] = rows, impacts.astype(np.int64)
        return cached

    def _words(self, queries: Sequence[str]) -> list[Counter[int]]:
        """The keys of each query's words, with their counts."""
        asked = [informative_words(query) for query in queries]
        new = [word for word in dict.fromkeys(chain(*asked)) if word not in self._stems]
        self._stems.update(zip(new, keys_in(new), strict=True))
        return [Counter(chain(*(self._stems[word] for word in words))) for words in asked]
