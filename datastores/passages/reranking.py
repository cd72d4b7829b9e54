"""Ranking passages for one question: BM25's best, ordered anew by how likely they are asked for.

BM25 counts the question's own words, anywhere in a passage. Here, other words that texts say
instead find candidates, too, and a passage is as good as its best paragraph or list item, by the
likelihood of the question: in a page of ten tasks, the words of one task belong together.

Right page of 7,226 tldr pages first and among the first three, of pages kept from learning: by BM25
.28 and .35 for 240 questions in people's own words, .64 and .78 for 120 easier ones, .86 and .91
for 150 reworded tasks; here, without a model, .40 and .55, .78 and .93, .89 and .92. With words of
no translations, as in another language: .29 and .41, .63 and .74, .87 and .93.

Owns the candidates, their scores, and which passages are relevant although they share few words
with the question (`bm25` has the others). Refuses to know how translations are learned.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, islice
from math import log

from datastores.passages.bm25 import Bm25Retriever
from datastores.passages.excerpts import MIN_FIT, best_items
from datastores.passages.protocol import Passage, QuestionModel, ScoredPassage
from datastores.passages.question_likelihood import parse_question, stems_of
from datastores.passages.question_words import STOP_WORDS, informative_words
from datastores.passages.translations import Translations
from datastores.passages.word_counts import surface_forms

CANDIDATES = 30
"""Passages of each of two rankings at least: by the question's words, and with others for them."""
OTHER_WORDS = 8
"""For each word of a question."""
BM25_WEIGHT = 0.4
"""Of BM25's score, in which every occurrence in a passage counts: all there is to go by in other
languages and subjects, whose words have no translations."""

CHANCE, FEW = 0.85, 3
"""The best score by chance grows with the logarithm of the number of passages, as that of any
log-likelihood ratio does (Karlin and Altschul, PNAS 1990): so fast, from so many passages on.

Of 11, 68, 331 and 7,753 passages of tldr pages, the right one is relevant to .95, .90, .81 and .52
of 97 to 340 questions in people's own words, and any is to .04, .05, .05 and .10 of 205 to 705
different ones on other subjects. By shared words alone, the right one is to .05, .12, .15 and .17,
and any is to .01, .01, .01 and .08."""


class Reranker:
    """Searches for one question. Methods raise StoreError if a store cannot be read."""

    def __init__(
        self,
        retriever: Bm25Retriever,
        translations: Translations,
        query: str,
        texts: Collection[bytes] | None = None,
        model: QuestionModel | None = None,
    ) -> None:
        """Args:
        texts: keys of the texts to be searched; None for all.
        model: orders the best, too; None for their words alone.
        """
        self._retriever = retriever
        self._translations = translations
        self._query = query
        self._words = informative_words(query)
        self._texts = texts
        self._likelihoods: dict[int, float] = {}
        self.question = parse_question(query, translations, retriever, model)

    def search(self, least: int) -> list[ScoredPassage]:
        """The best passages that have a word of the question or another for it; ties by id.

        Args:
            least: at least so many, if there are.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        candidates = self._candidates(max(least, CANDIDATES))
        ids = [one.id for one in candidates]
        (matches,) = self._retriever.score([self._query], ids)
        best = best_items([one.chunk for one in candidates], self.question)
        self._likelihoods = {number: item.score for number, item in zip(ids, best, strict=True)}
        scored = [
            (ScoredPassage(one, item.score + BM25_WEIGHT * match), item.entry)
            for one, item, match in zip(candidates, best, matches, strict=True)
        ]
        scored.sort(key=lambda one: (-one[0].score, one[0].passage.id))
        order = self.question.order([one.score for one, _ in scored], [text for _, text in scored])
        return [scored[place][0] for place in order]

    def relevant(
        self, ranked: Sequence[ScoredPassage], sharing_fit: float = 0.0
    ) -> list[ScoredPassage]:
        """Those of `ranked`, which `search` found, that share enough of the question's rare words
        (`Bm25Retriever.relevant`) or fit it better than by chance, in the same order.

        In other languages, whose common words nothing tells from rare ones, they have to share
        them; and a greeting fits nothing.

        Args:
            sharing_fit: how well those that share rare words must also fit; other languages are
                exempt.
        """
        sharing = {one.passage.id for one in self._retriever.relevant(self._query, ranked)}
        if not self.question.is_known or STOP_WORDS.issuperset(self._words):
            return [one for one in ranked if one.passage.id in sharing]
        by_chance = CHANCE * max(log(max(self._searched(), 1) / FEW), 0.0)
        return [
            one
            for one in ranked
            if self._fit(one, by_chance) >= MIN_FIT
            or (one.passage.id in sharing and self._fit(one) >= sharing_fit)
        ]

    def _fit(self, found: ScoredPassage, by_chance: float = 0.0) -> float:
        """How well its best paragraph or item fits, less the score expected `by_chance`."""
        return self.question.fit(self._likelihoods[found.passage.id] - by_chance)

    def _searched(self) -> int:
        """How many passages are searched."""
        if self._texts is None:
            return len(self._retriever)
        return self._retriever.passages_of(self._texts)

    def _candidates(self, count: int) -> list[Passage]:
        """The best `count` passages with any of the question's words, and as many with these or
        others for them."""
        found: dict[int, Passage] = {}
        for words in (self._words, [*self._words, *self._other_words()]):
            limit = count if self._texts is None else -1
            ranked = (one.passage for one in self._retriever.search_words(words, limit))
            passages = (one for one in ranked if self._texts is None or one.text in self._texts)
            found |= {one.id: one for one in islice(passages, count)}
        return list(found.values())

    def _other_words(self) -> list[str]:
        """Words that texts may say instead."""
        stems = (stem for _, stem in stems_of(" ".join(self._words)))
        others = chain(*(self._translations.expansions(stem, OTHER_WORDS) for stem in stems))
        return surface_forms(list(dict.fromkeys(others)))
