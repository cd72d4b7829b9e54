"""Ranking passages for one question: BM25's best, ordered anew by what BM25 cannot see.

BM25 counts the question's own words, anywhere in a passage. Here, associated words count as a part
of each of them (probabilistic structured queries: Darwish and Oard, SIGIR 2003), and the words
count once more in the paragraph that has most of them: in a page of ten tasks, those of one task
belong together.

On tldr pages kept from learning, right page among the first three, for reworded tasks and for
people's own words: .78 and .56 by BM25, .81 and .56 with paragraphs, .82 and .61 with associations
too. Other field weights (1 to 5), b, k1, rarity among questions and joined neighbours ("key pair",
"keypair") changed either by .01 at most; dividing by a paragraph's length brings .015 to the former
and costs the latter .025.

Owns the candidates and their scores. Refuses to know how associations are learned and which
passages are relevant at all (`bm25`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import fmean

import numpy as np

from datastores.passages.associations import Associations
from datastores.passages.bm25 import (
    CONTENT_WEIGHT,
    HEADING_WEIGHT,
    LENGTH_SHARE,
    SATURATION,
    Bm25Retriever,
)
from datastores.passages.protocol import Passage, ScoredPassage
from datastores.passages.question_words import AskedWord, asked_words, words_of
from datastores.passages.word_counts import (
    CONTENT_BITS,
    COUNT_BITS,
    MAX_IN_CONTENT,
    MAX_IN_HEADING,
    Words,
    count_words,
)

CANDIDATES = 30
"""Passages of each of two rankings at least: by the question's words, and with their associates.
More changed nothing."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A passage, how many words it has, and how often those that count occur, by their keys."""

    passage: Passage
    length: int
    heading: Mapping[int, int]
    paragraphs: Sequence[Mapping[int, int]]


class Reranker:
    """Searches for one question. Methods raise StoreError if the store cannot be read."""

    def __init__(self, retriever: Bm25Retriever, associations: Associations) -> None:
        self._retriever = retriever
        self._associations = associations

    def search(
        self, query: str, least: int, texts: Collection[bytes] | None = None
    ) -> list[ScoredPassage]:
        """The best passages that have a word of `query`, or an associate; best first, ties by id.

        Args:
            least: at least so many, if there are.
            texts: keys of the texts to be searched; None for all.
        """
        words = words_of(query)
        related = chain(*(self._associations.of(key) for key in chain(*words.values())))
        asked = asked_words(words, self._associations, self._retriever)
        wanted = frozenset(chain(*(word.weights for word in asked)))
        candidates = _counted(
            self._candidates(([*words], [*words, *related]), max(least, CANDIDATES), texts), wanted
        )
        mean = fmean([one.length for one in candidates] or [0]) or 1.0  # all may be without words
        scored = [ScoredPassage(one.passage, _score(one, asked, mean)) for one in candidates]
        return sorted(scored, key=lambda one: (-one.score, one.passage.id))

    def _candidates(
        self, queries: Iterable[Sequence[str]], count: int, texts: Collection[bytes] | None
    ) -> list[Passage]:
        """The best `count` passages with any of the words, for each of these lists of words."""
        found: dict[int, Passage] = {}
        for words in queries:
            ranked = self._retriever.search_words(words, count if texts is None else -1)
            passages = (one.passage for one in ranked if texts is None or one.passage.text in texts)
            found |= {one.id: one for one in islice(passages, count)}
        return list(found.values())


def _counted(passages: Sequence[Passage], wanted: Collection[int]) -> list[_Candidate]:
    """How often the words with the keys `wanted` occur in `passages`, counted together."""
    paragraphs = [_PARAGRAPH_END.split(one.chunk.content) for one in passages]
    texts = [
        (one.chunk.heading, paragraph)
        for one, split in zip(passages, paragraphs, strict=True)
        for paragraph in split
    ]
    counted = iter(count_words(texts))
    candidates = []
    for passage, split in zip(passages, paragraphs, strict=True):
        rows = list(islice(counted, len(split)))
        heading, _ = _occurrences(rows[0], CONTENT_BITS, MAX_IN_HEADING, wanted)
        found = [_occurrences(row, 0, MAX_IN_CONTENT, wanted) for row in rows]
        length = sum(words for _, words in found)
        candidates.append(_Candidate(passage, length, heading, [counts for counts, _ in found]))
    return candidates


def _occurrences(
    words: Words, shift: int, most: int, wanted: Collection[int]
) -> tuple[dict[int, int], int]:
    """How often the `wanted` words occur in the column at these bits (see `word_counts.STORED`),
    by key, and how often all words do."""
    counts = words >> np.uint64(shift) & np.uint64(most)
    pairs = zip((words >> np.uint64(COUNT_BITS)).tolist(), counts.tolist(), strict=True)
    return {key: count for key, count in pairs if count and key in wanted}, int(counts.sum())


def _score(candidate: _Candidate, asked: Sequence[AskedWord], mean_length: float) -> float:
    """BM25 of the passage, and what the words weigh that the best paragraph or the heading has."""
    norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * candidate.length / mean_length)
    total = 0.0
    for word in asked:
        count = HEADING_WEIGHT * word.weighted(candidate.heading) + CONTENT_WEIGHT * sum(
            word.weighted(paragraph) for paragraph in candidate.paragraphs
        )
        total += word.rarity * count * (SATURATION + 1) / (count + norm)
    in_paragraphs = (
        sum(word.rarity * word.best({**candidate.heading, **one}) for word in asked)
        for one in candidate.paragraphs
    )
    return total + max(in_paragraphs)
