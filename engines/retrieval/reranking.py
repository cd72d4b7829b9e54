"""Reranks BM25's best passages for one question by query likelihood.

BM25 counts the question's own words anywhere in a passage. The reranker also finds candidates by
translations of these words, and scores a passage by its best paragraph or list item: in a page of
ten tasks, the words of one task belong together. Similarity by an embedding model, if there is one,
is added to the score, and outweighs words.

The right one of 7,226 tldr pages ranks first, and among the first three, of held-out pages: by BM25
.28 and .35 for 240 questions in people's own words, .64 and .78 for 120 easier ones, .86 and .91
for 150 reworded tasks; here, without a model, .40 and .55, .78 and .93, .89 and .92; without
translations, as in another language, .29 and .41, .63 and .74, .87 and .93.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain

import numpy as np

from datastores.passages.chunks import Chunk, Passage
from datastores.passages.embeddings import Encoding
from datastores.passages.word_counts import surface_forms
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.excerpts import (
    MIN_FIT,
    ParsedChunk,
    RankedItem,
    best_items,
    parse_chunks,
)
from engines.retrieval.late_interaction import Matches
from engines.retrieval.nearness import Nearness, growth_of
from engines.retrieval.protocol import QuestionModel, ScoredPassage
from engines.retrieval.question_likelihood import parse_question, stems_of
from engines.retrieval.question_words import STOP_WORDS, informative_words, is_small_talk
from engines.retrieval.spellings import characters_of_unheld, respelled
from engines.retrieval.translations import Translations

CANDIDATES = 30
"""Minimum number of passages from each ranking: by the question's words, and with translations."""
OTHER_WORDS = 8
"""Translations per word of a question."""
BM25_WEIGHT = 0.4
"""Weight of BM25's score, in which every occurrence in a passage counts: the only evidence in
languages and subjects whose words have no translations."""

NEARNESS_WEIGHT = 6.0
"""Weight, in the score, of a standard deviation of similarity beyond chance.

People ask about their notes in words that stand nowhere in them, where similarity tells most; about
commands, the words do. With all-MiniLM-L6-v2, the right passage ranks first and among the first
three, with the weights 1, 6, 8 and similarity alone: of 102 questions about notes in .35 and .49,
.63 and .82, .63 and .83, .62 and .84; of 95 about manuals, mails, chats and prose in .29 and .46,
.54 and .78, .53 and .79, .51 and .78; of 98 about 387 tldr pages in .86 and .96, .87 and .96 (with
5, not 6), .84 and .96, .73 and .82; of 20 about notes in six other languages, with 1 and 6, .50 and
.85, .70 and .85. Reciprocal rank fusion of words and similarity, which ignores by how much the best
one leads, is worse than similarity alone: .33 and .52, .34 and .52.

A vector for each sentence (late chunking: the means of its token states in one pass over the
passage) found 127 instead of 122 of 243 reworded questions first, and 192 instead of 187 among the
first three, fewer of them about code and a diary, with three times the disk and six times the
memory: one vector per passage is kept."""
TOKEN_WEIGHT = 8.0
"""The same of late interaction (`late_interaction`).

Of 521 development questions about 395 passages of two persons' notes, manuals, mails, chats, prose
and code, and about 421 tldr pages, the right passage ranks first, and among the first three, with
the weights 5, 6, 7, 8, 9 and 12: .507 and .706, .511 and .702, .518 and .702, .518 and .704, .524
and .704, .526 and .699; without late interaction .445 and .635.

Without gain on the same questions: pseudo-relevance feedback by vectors, less similarity for
passages that are near to everything (to questions or to other passages), centred and whitened
vectors, questions without stop words or in other forms; the words of a question weighted by rarity,
and the mean of a passage's two best matches, as one."""

COMPLEMENTS = 3
"""Passages after the best that are chosen by what they add to those before them.

Of 42 development questions about two documents 35 have both among the first three instead of 32,
and of the 521 others .712 instead of .704 theirs; given both are .78 of 41 instead of .73."""
NEARNESS_FIT = 0.25
"""Weight of the same in the fit."""

NEARNESS_LEAD = 0.5
"""As `NEARNESS_FIT`, of the similarity of passages and of tokens, where a passage only has to lead:
a model that says so if passages do not answer loses more by a missing one than by a wrong one."""
MIN_LEAD = 1.4
"""Minimum fit of a passage that leads.

Of 423 development questions about notes, manuals, mails, chats, prose and code .612 are given the
passage that answers them, of 41 that need two documents .73 both, in 2.7 passages; of 100 about
commands .87 are given anything. By passages alone (.75 of a standard deviation, at least .75): .556
and .71 in 2.7 passages, and .91; by tokens alone, in as many, .608, .68 and .89."""
MIN_COVERAGE = 0.3
"""The same in languages whose words have no translations: minimum BM25 score relative to the rarity
of the question's words that are in any passage."""
NEAR_BEST = 0.2
"""Minimum share of the best lead. Of 22 questions in people's own words about 31 notes among 550
passages of command pages and code, 19 get all their notes, with 2.0 passages on average; by
`Reranker.relevant` 5, with 0.4."""

MIN_SHARE_OF_BEST = 0.5
"""Minimum share of the best passage's score for a listed passage."""

CHANCE = 0.85
"""Growth of the best score by chance per e-fold of passages (`growth_of`). It is logarithmic in
their number, as for any log-likelihood ratio (Karlin and Altschul, PNAS 1990).

With 11, 68, 331 and 7,753 passages of tldr pages, the right one counts as relevant for .95, .90,
.81 and .52 of 97 to 340 questions in people's own words, and any passage for .04, .05, .05 and .10
of 205 to 705 questions on other subjects. By shared words alone: .05, .12, .15 and .17, and .01,
.01, .01 and .08."""


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
        encoding: Encoding | None = None,
        parse: Callable[[Sequence[Chunk]], Sequence[ParsedChunk]] = parse_chunks,
    ) -> None:
        """Args:
            texts: keys of the texts to search; None for all.
            model: reranks the best passages; None to rank by words alone.
            dense: adds the similarity of passages that have a vector.
            encoding: by `dense`, of the question as `respelled`; None to encode it now.
            parse: may return the results of earlier calls.

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
        self._token_matches: dict[int, Matches] = {}
        self._tokens_beyond_chance: dict[int, float] = {}
        self._parse = parse
        self._nearness: Nearness | None = None
        if dense is not None:
            encoding = dense.encode([query])[0] if encoding is None else encoding
            self._nearness = Nearness(dense, encoding, self._searched(), texts)
        self.question = parse_question(query, translations, retriever, model)

    def search(self, count: int) -> list[ScoredPassage]:
        """The best passages that contain a word of the question or its translation, or are similar
        by embedding, best first, ties by id; at least `count` if there are as many. The first
        ones after the best are chosen together with those before them; see `COMPLEMENTS`.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        scored = self._scored(self._candidates(max(count, CANDIDATES)))
        scored.sort(key=lambda one: (-one[0].score, one[0].passage.id))
        scored = self._complementing(scored)
        order = self.question.order(
            [one.score for one, _ in scored], [item.entry for _, item in scored]
        )
        return [scored[place][0] for place in order]

    def _complementing(
        self, scored: list[tuple[ScoredPassage, RankedItem]]
    ) -> list[tuple[ScoredPassage, RankedItem]]:
        """`scored`, best first, with the next `COMPLEMENTS` by their scores and what they add to
        those before them: how much better their tokens together match the question."""
        left = [one for one in scored if one[0].passage.id in self._token_matches]
        if self._nearness is None or not left or left[0] is not scored[0]:
            return scored
        chosen = [left.pop(0)]
        matched = self._token_matches[chosen[0][0].passage.id]
        while left and len(chosen) <= COMPLEMENTS:
            together = np.maximum(matched, [self._token_matches[one.passage.id] for one, _ in left])
            gains = self._nearness.tokens_beyond_chance(together)
            best = int(np.argmax([one.score for one, _ in left] + TOKEN_WEIGHT * gains))
            matched = together[best]
            chosen.append(left.pop(best))
        first = {one.passage.id for one, _ in chosen}
        return [*chosen, *(one for one in scored if one[0].passage.id not in first)]

    def score(self, passages: Sequence[Passage]) -> list[float]:
        """The score of each of `passages` by words and embedding, as in `search` without a model;
        0.0 if it shares no word with the question and has no vector."""
        return [one.score for one, _ in self._scored(passages)]

    def _scored(self, passages: Sequence[Passage]) -> list[tuple[ScoredPassage, RankedItem]]:
        """The scores of `passages`, each with its best item."""
        ids = [one.id for one in passages]
        (matches,) = self._retriever.score([self._query], ids)
        self._matches = dict(zip(ids, matches, strict=True))
        best = best_items(self._parse([one.chunk for one in passages]), self.question)
        self._likelihoods = {number: item.score for number, item in zip(ids, best, strict=True)}
        if self._nearness is not None:
            self._beyond_chance = self._nearness.beyond_chance(ids)
            self._token_matches = self._nearness.match_tokens(ids)
            self._tokens_beyond_chance = {
                number: float(self._nearness.tokens_beyond_chance(own))
                for number, own in self._token_matches.items()
            }
        scored = []
        for one, item, match in zip(passages, best, matches, strict=True):
            near = NEARNESS_WEIGHT * self._beyond_chance.get(one.id, 0.0)
            near += TOKEN_WEIGHT * self._tokens_beyond_chance.get(one.id, 0.0)
            scored.append((ScoredPassage(one, item.score + BM25_WEIGHT * match + near), item))
        return scored

    def relevant(
        self, ranked: Sequence[ScoredPassage], sharing_fit: float = 0.0
    ) -> list[ScoredPassage]:
        """The passages of `ranked`, from `search`, that fit the question better than by chance, in
        the same order.

        Passages without a vector may share enough of its rare words instead
        (`Bm25Retriever.relevant`). So may all if the question's words have no translations, as in
        other languages, where stop words are unknown. The words of a greeting fit nothing.

        Args:
            sharing_fit: minimum fit of passages that share rare words, if the question's words have
                translations.
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

    def leading(
        self, ranked: Sequence[ScoredPassage], chat: Sequence[Chunk] = ()
    ) -> list[ScoredPassage]:
        """The passages of `ranked`, from `search`, that may answer the question by their words, by
        their meaning or by both, and lead not much less than the best; in the same order.

        The better the `chat` explains the question's words, the more a passage has to lead. Small
        talk is about no passage.

        Args:
            chat: texts of the chat that may answer the question themselves.
        """
        sharing = {one.passage.id for one in self._retriever.relevant(self._query, ranked)}
        if is_small_talk(self._query):
            return [
                one
                for one in ranked
                if one.passage.id in sharing and STOP_WORDS.issuperset(self._words)
            ]
        leads = [self._lead(one.passage.id, one.passage.id in sharing) for one in ranked]
        least = max(MIN_LEAD + self._explained(chat), NEAR_BEST * max(leads, default=0.0))
        return [one for one, its in zip(ranked, leads, strict=True) if its >= least]

    def _lead(self, passage: int, shares: bool) -> float:
        """Fit of a passage by its words and its embeddings, less what chance gives.

        Args:
            shares: whether it shares enough of the question's rare words.
        """
        near = self._beyond_chance.get(passage, 0.0)
        near = NEARNESS_LEAD * (near + self._tokens_beyond_chance.get(passage, 0.0))
        if self.question.is_known:
            words = self._fit(passage, CHANCE * growth_of(self._searched()))
        else:
            frequencies = filter(None, map(self._retriever.frequency, self._words))
            rarity = sum(map(self._retriever.rarity, frequencies))
            words = self._matches[passage] / rarity * MIN_LEAD / MIN_COVERAGE if rarity else 0.0
            near = max(near, 0.0)  # the embedding model may not know the language either
        return max(near + words, MIN_LEAD if shares else 0.0)

    def _explained(self, chat: Sequence[Chunk]) -> float:
        """How much better than by chance the best of these texts fits the question."""
        if not chat:
            return 0.0
        best = max(one.score for one in best_items(self._parse(chat), self.question))
        return max(0.0, self.question.fit(best - CHANCE * growth_of(self._searched())))

    def matching(self, ranked: Sequence[ScoredPassage]) -> list[ScoredPassage]:
        """The passages of `ranked`, from `search`, that contain a word of the question or fit it in
        other words, and score not much lower than the best; in the same order."""
        threshold = MIN_SHARE_OF_BEST * max((one.score for one in ranked), default=0.0)
        return [
            one
            for one in ranked
            if one.score >= threshold
            and (
                self._matches[one.passage.id] > 0
                or self._fit(one.passage.id) + self.nearness_fit(one.passage.id) >= MIN_FIT
            )
        ]

    def nearness_fit(self, passage: int) -> float:
        """Contribution of embedding similarity to the fit of a passage (id) from `search`."""
        return NEARNESS_FIT * self._beyond_chance.get(passage, 0.0)

    def _fit(self, passage: int, by_chance: float = 0.0) -> float:
        """Fit of the passage's best paragraph or item, less the score expected `by_chance`."""
        return self.question.fit(self._likelihoods[passage] - by_chance)

    def _searched(self) -> int:
        """Number of passages searched."""
        if self._texts is None:
            return len(self._retriever)
        return self._retriever.passages_of(self._texts)

    def _candidates(self, count: int) -> list[Passage]:
        """The best `count` passages by the question's words, by these and their translations, and
        by embedding similarity."""
        found: dict[int, Passage] = {}
        for words in (self._words, [*self._words, *self._other_words()]):
            ranked = self._retriever.search_words(words, count, self._texts)
            found |= {one.passage.id: one.passage for one in ranked}
        near = self._nearness.nearest(count) if self._nearness is not None else []
        return list((found | {one.id: one for one in near}).values())

    def _other_words(self) -> list[str]:
        """Words of texts that the question's words stand for."""
        stems = (stem for _, stem in stems_of(" ".join(self._words)))
        others = chain(*(self._translations.expansions(stem, OTHER_WORDS) for stem in stems))
        return surface_forms(list(dict.fromkeys(others)))
