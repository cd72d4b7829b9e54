"""BM25 in memory: an inverted index for many successive queries, and for scores of a few passages.

FTS5 evaluates every query separately: sixteen cost sixteen times one, and scoring a given passage
costs as much as a search. Here a word's contribution to each passage (its impact) is computed once
and cached, the queries of a batch, most of whose words recur, share their sums, and a batch is
divided among threads.

Impacts are integers, so that sums do not depend on order: a passage's score is the same in a batch,
alone, and among a few passages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log

import numpy as np
from numpy.typing import NDArray

from datastores.passages.word_counts import PassageWords, Words, keys_in
from engines.retrieval.bm25 import CONTENT_WEIGHT, HEADING_WEIGHT, LENGTH_SHARE, SATURATION
from engines.retrieval.exact import in_parallel
from engines.retrieval.question_words import informative_words

MIN_RARITY = 1e-6
"""FTS5's minimum inverse document frequency, for words in more than half of all passages."""
UNIT = 1 << 20
"""Impact of a score of 1.0. Scores reach some hundreds and differ in the third digit."""
BLOCK = 256
"""Passages per block, whose best score is examined first."""
SEGMENT_PASSAGES = 1 << 13
"""Passages per segment when many are added; sorting their words takes 70 MB."""
MAX_SEGMENTS = 8
"""Segments beyond the necessary ones from which the index is rebuilt; it is also rebuilt if more
than a quarter of the passages is new or gone."""
MAX_CACHED_WORDS = 1 << 14
"""Words whose impacts are cached."""

Integers = NDArray[np.int64]
Ranking = list[tuple[int, float]]
"""Ids of passages and their scores, best first, ties by id."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The words of some passages, by word.

    Attributes:
        keys: uint64 [words], ascending.
        starts: int64 [words + 1], offsets of each word's entries.
        rows: int32 [entries], rows of the passages that contain the word, ascending.
        counts: float32 [entries], counts of the word, weighted by column.
    """

    keys: Words
    starts: Integers
    rows: NDArray[np.int32]
    counts: NDArray[np.float32]

    @classmethod
    def of(cls, passages: PassageWords, first: int) -> Segment:
        """The words of `passages`, whose rows begin at `first`."""
        words = passages.keys
        order = np.argsort(words, kind="stable")
        keys, starts = np.unique(words[order], return_index=True)
        rows = np.repeat(
            np.arange(first, first + len(passages.ids), dtype=np.int32), passages.sizes
        )
        counts = HEADING_WEIGHT * passages.in_heading + CONTENT_WEIGHT * passages.in_content
        ends = np.append(starts, len(order))
        return cls(keys, ends, rows[order], counts[order].astype(np.float32))

    def entries(self, key: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The rows and counts of a word."""
        at = int(np.searchsorted(self.keys, np.uint64(key)))
        known = at < len(self.keys) and int(self.keys[at]) == key
        here = slice(*self.starts[at : at + 2].tolist()) if known else slice(0, 0)
        return self.rows[here], self.counts[here]


class InvertedIndex:
    """The words of passages, by word.

    `search` and `score` may run concurrently with each other, but not with changes.
    """

    def __init__(self) -> None:
        self._stems: dict[str, tuple[int, ...]] = {}
        self._impacts: dict[int, tuple[NDArray[np.int32], Integers]] = {}
        self.clear()

    def __len__(self) -> int:
        return int(self._alive.sum())

    @property
    def ids(self) -> Integers:
        """The ids of all passages, in the order of their rows."""
        return self._ids[self._alive]

    @property
    def is_fragmented(self) -> bool:
        """Whether the index should be rebuilt."""
        needed = len(self._ids) // SEGMENT_PASSAGES
        many = len(self._segments) >= needed + MAX_SEGMENTS
        return many or 4 * len(self) < 3 * len(self._ids)

    def clear(self) -> None:
        """Remove all passages."""
        self._segments: list[Segment] = []
        self._ids, self._alive = np.empty(0, np.int64), np.empty(0, np.bool_)
        self._lengths = np.empty(0, np.int64)
        self._changed()

    def add(self, parts: Iterable[PassageWords]) -> None:
        """Append new passages, with a segment for each part."""
        try:
            for part in parts:
                lengths = np.bincount(
                    np.repeat(np.arange(len(part.ids)), part.sizes),
                    part.in_heading + part.in_content,
                    len(part.ids),
                )
                segment = Segment.of(part, len(self._ids))
                self._append(segment, part.ids, lengths.astype(np.int64))
        finally:
            self._changed()

    def add_segment(self, segment: Segment, ids: Integers, lengths: Integers) -> None:
        """Append new passages as a segment whose rows follow the present ones.

        Args:
            ids: int64 [n], ids of the passages.
            lengths: int64 [n], number of words of each.
        """
        self._append(segment, ids, lengths)
        self._changed()

    def _append(self, segment: Segment, ids: Integers, lengths: Integers) -> None:
        self._segments.append(segment)
        self._ids = np.concatenate([self._ids, ids])
        self._alive = np.concatenate([self._alive, np.ones(len(ids), np.bool_)])
        self._lengths = np.concatenate([self._lengths, lengths])

    def remove(self, ids: Integers) -> None:
        """Remove these passages."""
        self._alive[np.isin(self._ids, ids)] = False
        self._changed()

    def rows_of(self, ids: Integers) -> NDArray[np.bool_]:
        """A mask of the rows of `ids`."""
        return np.isin(self._ids, ids)

    def search(
        self, queries: Sequence[str], limit: int, among: NDArray[np.bool_] | None = None
    ) -> list[Ranking]:
        """For each query the best `limit` passages that share a word with it; all if it is -1.

        Args:
            among: mask of the rows to search; None for all.
        """

        def ranked(part: Sequence[Counter[int]]) -> list[Ranking]:
            sums = self._totals(part)
            shown = (totals if among is None else np.where(among, totals, 0) for totals in sums)
            return [self._best(totals, limit) for totals in shown]

        return in_parallel(ranked, self._words(queries))

    def score(self, queries: Sequence[str], ids: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `ids`; 0.0 if they share no word."""
        # int32 like the segments' rows: with another type, searchsorted would convert all of them.
        rows = np.array([self._rows.get(number, -1) for number in ids], np.int32)
        return [self._score(stems, rows) for stems in self._words(queries)]

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
        totals, before = np.zeros(len(self._ids), np.int64), Counter[int]()
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
        """The ids and scores of the best rows above zero, ties by id."""
        threshold = 1
        blocks = len(totals) // BLOCK
        if 0 < limit <= blocks:
            # The limit-th best block maximum is a lower bound of the limit-th best row.
            best = totals[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
            threshold = max(threshold, int(np.partition(best, blocks - limit)[blocks - limit]))
        rows = np.flatnonzero(totals >= threshold)
        order = np.lexsort((self._ids[rows], -totals[rows]))
        rows = rows[order if limit < 0 else order[:limit]]
        return list(zip(self._ids[rows].tolist(), (totals[rows] / UNIT).tolist(), strict=True))

    def _impact(self, stem: int) -> tuple[NDArray[np.int32], Integers]:
        """The rows that contain `stem`, and its impact on each."""
        cached = self._impacts.get(stem)
        if cached is not None:
            return cached
        entries = [segment.entries(stem) for segment in self._segments]
        rows = np.concatenate([np.empty(0, np.int32), *(rows for rows, _ in entries)])
        counts = np.concatenate([np.empty(0, np.float32), *(counts for _, counts in entries)])
        alive = self._alive[rows]
        rows, counts = rows[alive], counts[alive].astype(np.float64)
        rarity = max(log((len(self) - len(rows) + 0.5) / (len(rows) + 0.5)), MIN_RARITY)
        norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * self._lengths[rows] / self._mean)
        impacts = np.rint(UNIT * rarity * counts * (SATURATION + 1) / (counts + norm))
        if len(self._impacts) >= MAX_CACHED_WORDS:
            self._impacts = {}
        cached = self._impacts[stem] = rows, impacts.astype(np.int64)
        return cached

    def _changed(self) -> None:
        """Update the statistics, and drop the impacts computed from earlier ones."""
        self._impacts = {}
        self._mean = max(float(self._lengths[self._alive].mean()), 1e-9) if len(self) else 1.0
        alive = np.flatnonzero(self._alive)
        self._rows = dict(zip(self._ids[alive].tolist(), alive.tolist(), strict=True))

    def _words(self, queries: Sequence[str]) -> list[Counter[int]]:
        """The keys of each query's words, with their counts."""
        asked = [informative_words(query) for query in queries]
        new = [word for word in dict.fromkeys(chain(*asked)) if word not in self._stems]
        self._stems.update(zip(new, keys_in(new), strict=True))
        return [Counter(chain(*(self._stems[word] for word in words))) for words in asked]
