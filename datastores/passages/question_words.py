"""The words of a question as rankings count them: each with its associates and its rarity.

Owns which words of a question say what it is about, and how they become keys that can be looked up
among counted words. Refuses to know how occurrences add up to a score (`reranking`, `excerpts`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Protocol

from datastores.passages.associations import Associations
from datastores.passages.word_counts import key_of, keys_in

MAX_QUERY_WORDS = 64
"""Later words of a query are ignored: a query is a question or 32 tokens, never a document."""
_STOP_WORDS = """
a about all an and any anyone are as at be been being best but by can command could did do does
doing each easiest everyone everything few for from get give had has have having he help here how i
idea if in is it its just know let line linux looking make may me might more most must my need no
nor not now of off on once only or other our over own please possible recommend remind same shall
she shell should show simplest so some someone something such tell terminal than that the their them
then there these they thing things this those to too try trying under us use used using very want
was way ways we were what when where which who whom whose why will with wonder wondering would you
your
"""
_GREETINGS = "bye goodbye hello hey hi ok okay thank thanks yeah yes"
STOP_WORDS = frozenset([*_STOP_WORDS.split(), *_GREETINGS.split()])
"""English words that carry a question, not its subject; elsewhere rarity has to do."""

_WORD = re.compile(r"\w+")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
"""Else the "s" of "the router's address" is a word of the question."""


class WordStatistics(Protocol):
    """How common words are among passages."""

    def frequency(self, word: str) -> int:
        """How many passages hold `word`."""
        ...

    def rarity(self, frequency: float) -> float:
        """What a word in so many passages counts."""
        ...


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of a question.

    Attributes:
        weights: by key what an occurrence counts: 1 for the word itself, less for associates.
        rarity: what the word counts.
    """

    weights: Mapping[int, float]
    rarity: float

    def weighted(self, counts: Mapping[int, int]) -> float:
        """How often the word occurs, each associate by its weight."""
        return sum(self.weights.get(key, 0.0) * count for key, count in counts.items())

    def best(self, keys: Collection[int]) -> float:
        """The weight of the word or of its best associate among `keys`; 0.0 if none is there."""
        return max((self.weights.get(key, 0.0) for key in keys), default=0.0)


def informative_words(query: str) -> list[str]:
    """The query's words in order, without stop words unless nothing else is left."""
    words = list(dict.fromkeys(split_words(_CONTRACTION.sub("", query))))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MAX_QUERY_WORDS]


def split_words(text: str) -> list[str]:
    """The words of `text` in lower case, in order."""
    return [word.lower() for word in _WORD.findall(text)]


def asked_words(
    words: Mapping[str, Sequence[int]], associations: Associations, statistics: WordStatistics
) -> list[AskedWord]:
    """The words of a question, as `words_of` gives them.

    One that no passage has is as rare as its associates, by their weights.
    """
    return [
        _asked(word, key, associations.of(key), statistics)
        for word, keys in words.items()
        for key in keys
    ]


def _asked(
    word: str, key: int, related: Mapping[str, float], statistics: WordStatistics
) -> AskedWord:
    frequency: float = statistics.frequency(word) or sum(
        weight * statistics.frequency(other) for other, weight in related.items()
    )
    weights = {key_of(other): weight for other, weight in related.items()} | {key: 1.0}
    return AskedWord(weights, statistics.rarity(frequency))


def words_of(query: str) -> dict[str, tuple[int, ...]]:
    """The informative words of a query with their keys (see `word_counts.key_of`): several, if the
    index sees several words in one."""
    words = informative_words(query)
    return dict(zip(words, keys_in(words), strict=True))


def inverse_document_frequency(frequency: float, passages: int) -> float:
    """The rarity of a word in so many of all `passages`, as in BM25.

    Never negative, even where a word's associates together are in more.
    """
    return log(1 + max(passages - frequency + 0.5, 0.0) / (frequency + 0.5))
