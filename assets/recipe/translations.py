"""Learns which words of people's questions stand for which words of texts.

The translation probabilities are those of IBM Model 1 (Brown et al., 1993, section 4.1), from a
page's words to a question's (Berger and Lafferty, SIGIR 1999), learned from tasks in people's own
words. Two hand-written dictionaries are the prior, since pairs say little about rare words.
Questions outside the subject are counted, too; otherwise their words would seem rare.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from assets.recipe import read_lines
from assets.recipe.material_files import Task
from assets.recipe.pages import Page
from datastores.passages.word_counts import terms_in
from engines.retrieval.question_likelihood import UNSEEN_CHANCE
from engines.retrieval.question_words import words_of

ROUNDS = 5
"""Rounds of expectation maximisation; more rounds only sharpen the chances of rare words."""
MIN_COUNT = 1.0
"""Minimum expected number of times that one word stands for the other, unless a dictionary has the
pair. With .5, the file is nearly twice as long and retrieval no better."""
MIN_LIFT = 2.0
"""Minimum ratio of a word's chance given the other word to its chance in any question. Lower values
add nothing."""
PRIOR_COUNT = 5.0
"""Added to the occurrences of a page's word, so that rare words get low chances."""
DICTIONARY_COUNT = 20.0
"""Total count of a dictionary's entry, in occurrences of its word."""
OWN_COUNT = 8.0
"""Pseudo-occurrences in which a word stands for itself with `UNSEEN_CHANCE`."""
SECONDARY, LATER = 0.35, 0.85
"""Weight of a dictionary's weaker words, and of each word relative to the previous one."""

Pair = tuple[Sequence[str], Sequence[str]]
"""The distinct stems of a question, and those of the text that answers it."""

LearnedWord = tuple[str, float, Mapping[str, float]]
"""A word of questions, its share of all of them, and its chance by word of texts."""

_NO_WORD = ""
"""The null word of Model 1: part of every text, for words that no other word of it explains."""


def translate(
    tasks: Iterable[Task], pages: Mapping[str, Page], outside: Sequence[str]
) -> list[LearnedWord]:
    """Learn from the phrases of `tasks` and from questions `outside` the subject.

    `pages` holds the tasks' pages by name.
    """
    elsewhere = Counter(word for words in terms_in(outside) for word in words)
    return learn(pairs(tasks, pages), read_dictionaries(), elsewhere)


def pairs(tasks: Iterable[Task], pages: Mapping[str, Page]) -> list[Pair]:
    """Pair each phrase with its task, command and the page's summary."""
    asked, answering = [], []
    for task in tasks:
        page = pages.get(task.name)
        summary = page.summary if page else ""
        text = f"{task.answer.plain} {task.answer.command} {task.name} {summary}"
        asked += [" ".join(words_of(phrase)) for phrase in task.phrases]
        answering += [text] * len(task.phrases)
    texts = list(dict.fromkeys(answering))
    stems = dict(zip(texts, terms_in(texts), strict=True))
    return [
        (question, stems[text]) for question, text in zip(terms_in(asked), answering, strict=True)
    ]


@cache
def read_dictionaries() -> dict[str, dict[str, float]]:
    """The words that people ask with and their weights, by word of texts; all as stems.

    ``asked_with.txt`` has it as ``word: words of questions | weaker ones``, ``answered_with.txt``
    the other way around: ``word of questions: words of texts | weaker ones``.
    """
    weights: dict[tuple[str, str], float] = defaultdict(float)
    for line in read_lines("asked_with.txt"):
        head, others = _entry(line)
        for word, weight in others:
            weights[word, head] += weight
    for line in read_lines("answered_with.txt"):
        head, others = _entry(line)
        for word, weight in others:
            weights[head, word] += weight
    words = list({word for pair in weights for word in pair})
    stems = dict(zip(words, terms_in(words), strict=True))
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (asked, answering), weight in weights.items():
        for word, other in product(stems[asked], stems[answering]):
            if word != other:
                found[other][word] += weight
    return found


def _entry(line: str) -> tuple[str, list[tuple[str, float]]]:
    head, _, others = line.partition(":")
    near, _, weaker = others.partition("|")
    return head.strip(), [
        (word, weight * LATER**place)
        for words, weight in ((near, 1.0), (weaker, SECONDARY))
        for place, word in enumerate(words.split())
    ]


def learn(
    learned_from: Sequence[Pair],
    dictionary: Mapping[str, Mapping[str, float]],
    elsewhere: Mapping[str, int],
) -> list[LearnedWord]:
    """Each word of questions with its share and chances, the most frequent pairs first.

    Args:
        elsewhere: counts of words in other questions, which make up half of each share.
    """
    expected = expect_counts(learned_from)
    whole, others = sum(expected.asked.values()) or 1.0, sum(elsewhere.values()) or 1
    prior = {
        (word, other): DICTIONARY_COUNT * weight / (sum(words.values()) + 1)
        for other, words in dictionary.items()
        for word, weight in words.items()
    }
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for word, other in {**expected.pairs, **prior}:
        count = expected.pairs.get((word, other), 0.0)
        answered = expected.answering.get(other, 0.0)
        if word == other:
            count += UNSEEN_CHANCE * OWN_COUNT
            chance = count / (answered + OWN_COUNT)
        elif count >= MIN_COUNT or (word, other) in prior:
            count += prior.get((word, other), 0.0)
            added = DICTIONARY_COUNT if other in dictionary else 0.0
            chance = count / (answered + PRIOR_COUNT + added)
        else:
            continue
        if word == other or chance >= MIN_LIFT * expected.asked.get(word, 0.0) / whole:
            found[word][other] = count, chance
    return [
        (
            word,
            (expected.asked.get(word, 0.0) / whole + elsewhere.get(word, 0) / others) / 2,
            _ranked(chances),
        )
        for word, chances in found.items()
    ]


def _ranked(found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The chances in descending order of counts."""
    ranked = sorted(found, key=lambda other: (-found[other][0], other))
    return {other: found[other][1] for other in ranked}


@dataclass(frozen=True)
class ExpectedCounts:
    """Model 1's expected counts of one word standing for another.

    ``pairs`` holds them by a question's word and a text's, ``asked`` and ``answering`` their sums
    by word of questions and by word of texts.
    """

    pairs: Mapping[tuple[str, str], float]
    asked: Mapping[str, float]
    answering: Mapping[str, float]


def expect_counts(learned_from: Sequence[Pair]) -> ExpectedCounts:
    """The expected counts after `ROUNDS` rounds."""
    asked: dict[str, int] = {}
    answering = {_NO_WORD: 0}
    rows = [
        (asked.setdefault(word, len(asked)), answering.setdefault(other, len(answering)), place)
        for place, (word, text) in enumerate(_words(learned_from))
        for other in (_NO_WORD, *text)
    ]
    words, others, places = np.array(rows, np.int64).reshape(-1, 3).T
    distinct, cells = np.unique(words * len(answering) + others, return_inverse=True)
    of_word, of_other = np.divmod(distinct, len(answering))
    counts = _iterate(cells, places, of_other)
    named, naming = list(asked), list(answering)
    pairs = zip(of_word.tolist(), of_other.tolist(), counts.tolist(), strict=True)
    return ExpectedCounts(
        {(named[word], naming[other]): count for word, other, count in pairs if other},
        dict(zip(named, np.bincount(of_word, counts).tolist(), strict=True)),
        dict(zip(naming[1:], np.bincount(of_other, counts).tolist()[1:], strict=True)),
    )


def _words(learned_from: Iterable[Pair]) -> Iterable[tuple[str, Sequence[str]]]:
    return ((word, text) for question, text in learned_from for word in question)


def _iterate(
    cells: NDArray[np.int64], places: NDArray[np.int64], of_other: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Expected counts by cell, where a cell is a pair of words.

    `cells` and `places` hold for each candidate its cell and the occurrence of a question's word.
    `of_other` holds the text's word of each cell.
    """
    chances = np.ones(len(of_other))  # the first round is uniform for any value
    for _ in range(ROUNDS):
        shares = chances[cells]
        shares /= np.bincount(places, shares)[places]
        counts = np.bincount(cells, shares, len(of_other))
        chances = counts / np.bincount(of_other, counts)[of_other]
    return counts.astype(np.float64)
