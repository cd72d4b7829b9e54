"""Ranking passages for one question: BM25's best, ordered anew by how likely they are asked for.

BM25 counts the question's own words, anywhere in a passage. Here, other words that texts say
instead find candidates, too, and a passage is as good as its best paragraph or list item, by the
likelihood of the question: in a page of ten tasks, the words of one task belong together.

Right page of 7,226 tldr pages first and among the first three, of pages kept from learning: by BM25
.34 and .49 for 400 questions in people's own words, .64 and .78 for 120 easier ones, .87 and .92
for 400 reworded tasks; here .50 and .65, .76 and .89, .89 and .94. With words of no translations,
as in another language: .34 and .49, .64 and .77.

Owns the candidates, their scores, and which passages are relevant although they share few words
with the question (`bm25` has the others). Refuses to know how translations are learned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice
from math import log

from datastores.passages.bm25 import Bm25Retriever
from datastores.passages.excerpts import MIN_FIT, best_scores
from datastores.passages.protocol import Passage, ScoredPassage
from datastores.passages.question_likelihood import parse_question, stems_of
from datastores.passages.question_words import informative_words
from datastores.passages.translations import Translations
from datastores.passages.word_counts import surface_forms

CANDIDATES = 30
"""Passages of each of two rankings at least: by the question's words, and with others for them."""
OTHER_WORDS = 8
"""For each word of a question."""
BM25_WEIGHT = 0.4
"""Of BM25's score, in which every occurrence in a passage counts: all there is to go by in other
languages and subjects, whose words have no translations."""

CHANCE = 0.75
"""Times the logarithm of the number of passages: what the best score by chance grows by, as that of
a log-likelihood ratio does (Karlin and Altschul, PNAS 1990).

Of 11, 64, 300 and 6,939 passages of tldr pages, one of the right page is relevant to .99, .98, .96
and .85 of 120 easier questions in people's own words, and to .90, .81, .67 and .37 of 240 others;
any is to .02, .04, .02 and .06 of questions on other subjects. By shared words alone, it is to .39,
.39, .41 and .46 of the easier ones, and to .24, .24, .23 and .18 of the others."""


class Reranker:
    """Searches for one question. Methods raise StoreError if a store cannot be read."""

    def __init__(self, retriever: Bm25Retriever, translations: Translations) -> None:
        self._retriever = retriever
        self._translations = translations

    def search(
        self, query: str, least: int, texts: Collection[bytes] | None = None
    ) -> list[ScoredPassage]:
        """The best passages that have a word of `query` or another for it; ties by id.

        Args:
            least: at least so many, if there are.
            texts: keys of the texts to be searched; None for all.
        """
        words = informative_words(query)
        question = parse_question(query, self._translations, self._retriever)
        candidates = self._candidates(
            (words, [*words, *self._other_words(words)]), max(least, CANDIDATES), texts
        )
        (matches,) = self._retriever.score([query], [one.id for one in candidates])
        likely = best_scores([one.chunk for one in candidates], question)
        scored = [
            ScoredPassage(one, score + BM25_WEIGHT * match)
            for one, score, match in zip(candidates, likely, matches, strict=True)
        ]
        return sorted(scored, key=lambda one: (-one.score, one.passage.id))

    def relevant(self, query: str, ranked: Sequence[ScoredPassage]) -> list[ScoredPassage]:
        """Those of `ranked` that share enough of the query's rare words (`Bm25Retriever.relevant`)
        or fit it, in the same order."""
        found = {one.passage.id for one in self._retriever.relevant(query, ranked)}
        others = [one for one in ranked if one.passage.id not in found]
        question = parse_question(query, self._translations, self._retriever)
        scores = best_scores([one.passage.chunk for one in others], question)
        by_chance = CHANCE * log(max(len(self._retriever), 1))
        for one, score in zip(others, scores, strict=True):
            if question.fit(score - by_chance) >= MIN_FIT:
                found.add(one.passage.id)
        return [one for one in ranked if one.passage.id in found]

    def _other_words(self, words: Sequence[str]) -> list[str]:
        """Words that texts may say instead."""
        stems = (stem for _, stem in stems_of(" ".join(words)))
        others = chain(*(self._translations.expansions(stem, OTHER_WORDS) for stem in stems))
        return surface_forms(list(dict.fromkeys(others)))

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
