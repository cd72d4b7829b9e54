"""Ranking passages for one question: BM25's best, ordered anew by how likely they are asked for.

BM25 counts the question's own words, anywhere in a passage. Here, other words that texts say
instead find candidates, too, and a passage is as good as its best paragraph or list item, by the
likelihood of the question: in a page of ten tasks, the words of one task belong together. Where an
embedding model ranks passages by meaning, that is added.

Right page of 7,226 tldr pages first and among the first three, of pages kept from learning: by BM25
.28 and .35 for 240 questions in people's own words, .64 and .78 for 120 easier ones, .86 and .91
for 150 reworded tasks; here, without a model, .40 and .55, .78 and .93, .89 and .92. With words of
no translations, as in another language: .29 and .41, .63 and .74, .87 and .93.

Owns the candidates, their scores, and which passages are relevant although they share few words
with the question (`bm25` has the others). Refuses to know how translations are learned and vectors
are made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from datastores.passages.chunks import Passage
from datastores.passages.word_counts import surface_forms
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.excerpts import MIN_FIT, best_items
from engines.retrieval.nearness import Nearness, growth_of
from engines.retrieval.protocol import QuestionModel, ScoredPassage
from engines.retrieval.question_likelihood import parse_question, stems_of
from engines.retrieval.question_words import STOP_WORDS, informative_words
from engines.retrieval.spellings import characters_of_unheld, respelled
from engines.retrieval.translations import Translations

CANDIDATES = 30
"""Passages of each of two rankings at least: by the question's words, and with others for them."""
OTHER_WORDS = 8
"""For each word of a question."""
BM25_WEIGHT = 0.4
"""Of BM25's score, in which every occurrence in a passage counts: all there is to go by in other
languages and subjects, whose words have no translations."""

NEARNESS_WEIGHT = 1.0
"""Of a standard deviation by which a passage is nearer by meaning than by chance, in its score. All
from .5 to 2 do about as well. Reciprocal rank fusion ranks worse than words alone: with
all-MiniLM-L6-v2, of 7,225 pages the right one is first and among the first three in .51 and .72 of
340 questions in people's own words and in .91 and .97 of 150 reworded tasks; fused by ranks in .46
and .62, and in .84 and .90; by words in .49 and .68, and in .93 and .97."""
NEARNESS_FIT = 0.25
"""The same, in how well a passage fits."""

MIN_SHARE_OF_BEST = 0.5
"""Of the best passage's score, of what is listed beside it."""

CHANCE = 0.85
"""The best score by chance grows with the logarithm of the number of passages, as that of any
log-likelihood ratio does (Karlin and Altschul, PNAS 1990): so fast for each e-fold
(`growth_of`).

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
        dense: DenseRetriever | None = None,
    ) -> None:
        """Args:
            texts: keys of the texts to be searched; None for all.
            model: orders the best, too; None for their words alone.
            dense: ranks by meaning, too, what has a vector.

        Raises:
            ModelError: the model of `dense` cannot encode the question.
        """
        self._retriever = retriever
        self._translations = translations
        self._query = query = respelled(query, retriever.frequency)
        words = informative_words(query)
        self._words = [*words, *characters_of_unheld(words, retriever.frequency)]
        self._texts = texts
        self._matches: dict[int, float] = {}
        self._likelihoods: dict[int, float] = {}
        self._beyond_chance: dict[int, float] = {}
        self._nearness: Nearness | None = None
        if dense is not None:
            self._nearness = Nearness(dense, query, self._searched(), texts)
        self.question = parse_question(query, translations, retriever, model)

    def search(self, least: int) -> list[ScoredPassage]:
        """The best passages that are near to the question or have a word of it, or another for it;
        ties by id.

        Args:
            least: at least so many, if there are.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        candidates = self._candidates(max(least, CANDIDATES))
        ids = [one.id for one in candidates]
        (matches,) = self._retriever.score([self._query], ids)
        self._matches = dict(zip(ids, matches, strict=True))
        best = best_items([one.chunk for one in candidates], self.question)
        self._likelihoods = {number: item.score for number, item in zip(ids, best, strict=True)}
        if self._nearness is not None:
            self._beyond_chance = self._nearness.beyond_chance(ids)
        scored = [
            (ScoredPassage(one, item.score + BM25_WEIGHT * match + self._near(one.id)), item.entry)
            for one, item, match in zip(candidates, best, matches, strict=True)
        ]
        scored.sort(key=lambda one: (-one[0].score, one[0].passage.id))
        order = self.question.order([one.score for one, _ in scored], [text for _, text in scored])
        return [scored[place][0] for place in order]

    def relevant(
        self, ranked: Sequence[ScoredPassage], sharing_fit: float = 0.0
    ) -> list[ScoredPassage]:
        """Those of `ranked`, which `search` found, that fit the question better than by chance, in
        the same order.

        What has no vector may share enough of its rare words instead (`Bm25Retriever.relevant`).
        So may everything in other languages, whose common words nothing tells from rare ones; and
        the words of a greeting fit nothing.

        Args:
            sharing_fit: how well those that share rare words must also fit; other languages are
                exempt.
        """
        sharing = {one.passage.id for one in self._retriever.relevant(self._query, ranked)}
        known = self.question.is_known and not STOP_WORDS.issuperset(self._words)
        by_chance = CHANCE * growth_of(self._searched())

        def fits(found: ScoredPassage) -> bool:
            number = found.passage.id
            words = self._fit(number, by_chance) if known else 0.0
            if words + self.nearness_fit(number) >= MIN_FIT:
                return True
            if number not in sharing or (known and number in self._beyond_chance):
                return False
            return not known or self._fit(number) >= sharing_fit

        return list(filter(fits, ranked))

    def matching(self, ranked: Sequence[ScoredPassage]) -> list[ScoredPassage]:
        """Those of `ranked`, which `search` found, that have a word of the question or fit it in
        other words, and are not much worse than the best; in the same order."""
        least = MIN_SHARE_OF_BEST * max((one.score for one in ranked), default=0.0)
        return [
            one
            for one in ranked
            if one.score >= least
            and (self._matches[one.passage.id] > 0 or self._fit(one.passage.id) >= MIN_FIT)
        ]

    def nearness_fit(self, passage: int) -> float:
        """What its meaning adds to how well a passage (id) that `search` found fits."""
        return NEARNESS_FIT * self._beyond_chance.get(passage, 0.0)

    def _near(self, passage: int) -> float:
        """What its meaning adds to the score of a passage."""
        return NEARNESS_WEIGHT * self._beyond_chance.get(passage, 0.0)

    def _fit(self, passage: int, by_chance: float = 0.0) -> float:
        """How well its best paragraph or item fits, less the score expected `by_chance`."""
        return self.question.fit(self._likelihoods[passage] - by_chance)

    def _searched(self) -> int:
        """How many passages are searched."""
        if self._texts is None:
            return len(self._retriever)
        return self._retriever.passages_of(self._texts)

    def _candidates(self, count: int) -> list[Passage]:
        """The best `count` passages with any of the question's words, as many with these or others
        for them, and as many by meaning."""
        found: dict[int, Passage] = {}
        for words in (self._words, [*self._words, *self._other_words()]):
            ranked = self._retriever.search_words(words, count, self._texts)
            found |= {one.passage.id: one.passage for one in ranked}
        near = self._nearness.nearest(count) if self._nearness is not None else []
        return list((found | {one.id: one for one in near}).values())

    def _other_words(self) -> list[str]:
        """Words that texts may say instead."""
        stems = (stem for _, stem in stems_of(" ".join(self._words)))
        others = chain(*(self._translations.expansions(stem, OTHER_WORDS) for stem in stems))
        return surface_forms(list(dict.fromkeys(others)))
