"""Query likelihood: how much likelier a question is if a given text answers it.

Questions are modelled by translation from the words of texts (Berger and Lafferty, "Information
Retrieval as Statistical Translation", SIGIR 1999; Xue, Jeon and Croft, SIGIR 2008): a text that
says "remove" is asked for with "delete", "clear" or "get rid of", with probabilities from
`translations`. Stop words need no list: they are equally likely for any text.

A language model that reads the whole text ranks better but takes much longer (Sachan et al.,
"Improving Passage Retrieval with Zero-Shot Question Generation", EMNLP 2022), so it only reranks
the best few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import fsum, log1p
from typing import Protocol

from datastores.passages.word_counts import key_of, keys_in, terms_in
from datastores.search_form import index_form, is_gram
from engines.retrieval.protocol import QuestionModel
from engines.retrieval.question_words import MAX_QUERY_WORDS, MIN_STATISTICS, words_of
from engines.retrieval.spellings import characters_of_unheld
from engines.retrieval.translations import Translations

INTRODUCTION_WEIGHT, CODE_WEIGHT = 0.5, 0.3
"""Weights of the language models of a text's introduction and code, relative to that of its prose.
Introductions at .3 or .8 rank up to .005 fewer right answers first."""
UNSEEN_CHANCE = 0.3
"""Probability that a question uses a text's own word, for words without translations."""
MIN_BACKGROUND = 5e-5
"""Minimum background probability of a word, for rare words."""
PASSAGE_WORDS = 60
"""Approximate number of distinct words in a passage of 1,024 characters."""
COMMON_WORD, RARE_WORD = 2.0, 5.0
"""Maximum contribution to a score at and below which a word has no weight in a fit, and at and
above which it has full weight."""

MODEL_TEXTS = 8
"""Texts that a model reranks."""
MODEL_WEIGHT = 0.3
"""Weight of a model's log-likelihood relative to the score; common words count in it in full."""

_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|(?<!`)```.*", re.DOTALL)
"""Code spans and fences, including one whose end was cut off."""


class WordStatistics(Protocol):
    """How common words are among passages."""

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def frequency(self, word: str) -> int:
        """Number of passages that contain `word`."""
        ...


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of a question.

    Attributes:
        chances: key of a text's word → probability of this word in a question about it.
        background: its probability in any question.
        is_known: whether it has translations.
    """

    chances: Mapping[int, float]
    background: float
    is_known: bool = False

    @property
    def weight(self) -> float:
        """Its weight in a fit: from 0 for common words to 1 for rare ones."""
        most = log1p(UNSEEN_CHANCE / self.background)
        return min(max((most - COMMON_WORD) / (RARE_WORD - COMMON_WORD), 0.0), 1.0)

    def likelihood(self, text: TextWords) -> float:
        """Its probability in a question that `text` answers, relative to the background."""
        total = _mean(self.chances, text.prose)
        total += CODE_WEIGHT * _mean(self.chances, text.code)
        total += INTRODUCTION_WEIGHT * _mean(self.chances, text.introduction)
        return total / self.background


@dataclass(frozen=True, slots=True)
class TextWords:
    """The keys of the distinct words of a text; `code` without those in `prose`."""

    prose: Set[int]
    code: Set[int]
    introduction: Set[int] = frozenset()


class AskedQuestion:
    """A question that texts are scored for."""

    def __init__(
        self, text: str, words: Sequence[AskedWord], model: QuestionModel | None = None
    ) -> None:
        self._text = text
        self._words = words
        self._model = model

    @property
    def is_known(self) -> bool:
        """Whether most words have translations, so that common words are told from rare ones."""
        known = sum(word.is_known for word in self._words)
        return 2 * known >= len(self._words)

    def score(self, text: TextWords) -> float:
        """A smoothed log-likelihood ratio, summed over the words; at least 0."""
        return sum(log1p(word.likelihood(text)) for word in self._words)

    def fit(self, score: float) -> float:
        """A score per weight of the question's words, which is comparable among questions, however
        politely they are asked."""
        return score / (sum(word.weight for word in self._words) + 1)  # one word proves little

    def order(self, scores: Sequence[float], texts: Sequence[str]) -> list[int]:
        """The final ranking of `texts`, given by descending score, as indices.

        The first `MODEL_TEXTS` are reranked by the model, if there is one and most of the words
        have translations: it knows no other languages. Equal texts keep their order.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        places, first = list(range(len(texts))), texts[:MODEL_TEXTS]
        if self._model is None or len(first) < 2 or not self.is_known:
            return places
        # Logits depend slightly on the position in a batch, so equal texts are scored once.
        unique = list(dict.fromkeys(first))
        likely = dict(zip(unique, self._model.log_likelihoods(self._text, unique), strict=True))
        total = [
            score + MODEL_WEIGHT * likely[text] for score, text in zip(scores, first, strict=False)
        ]
        return [*sorted(places[: len(first)], key=lambda n: -total[n]), *places[len(first) :]]


def _mean(chances: Mapping[int, float], words: Set[int]) -> float:
    found = chances.keys() & words
    # Sets have no order, and the sum must not depend on it.
    return fsum(chances[key] for key in found) / (1 + len(words)) if found else 0.0


def parse_question(
    query: str,
    translations: Translations,
    statistics: WordStatistics,
    model: QuestionModel | None = None,
) -> AskedQuestion:
    """Parse `query` into its distinct words with their probabilities.

    Args:
        model: reranks the best texts; None to rank by words alone.

    Raises:
        StoreError: the translations or the statistics cannot be read.
    """
    stems = stems_of(query)
    # A bigram in no passage spans two words; its characters count instead.
    characters = characters_of_unheld([word for word, _ in stems], statistics.frequency)
    stems = [one for one in stems if not is_gram(one[0]) or statistics.frequency(one[0])]
    words = [
        _asked(word, stem, translations, statistics)
        for word, stem in (*stems, *zip(characters, characters, strict=True))
    ]
    return AskedQuestion(query, words, model)


def stems_of(query: str) -> list[tuple[str, str]]:
    """The first `MAX_QUERY_WORDS` distinct words of a question, each with its stem, in order.

    A name that the index splits into several words ("snake_case") yields these.
    """
    words = list(dict.fromkeys(words_of(query)))[:MAX_QUERY_WORDS]
    found: dict[str, tuple[str, str]] = {}
    for word, stems in zip(words, terms_in(words), strict=True):
        for stem in stems:
            found.setdefault(stem, (word if len(stems) == 1 else stem, stem))
    return list(found.values())[:MAX_QUERY_WORDS]


def _asked(
    word: str, stem: str, translations: Translations, statistics: WordStatistics
) -> AskedWord:
    known = translations.of(stem)
    passages = max(len(statistics), MIN_STATISTICS)
    share = statistics.frequency(word) / (passages * PASSAGE_WORDS)
    background = (known.share + share) / 2 if known.chances else share
    chances = {key_of(stem): UNSEEN_CHANCE, **known.chances}
    return AskedWord(chances, max(background, MIN_BACKGROUND), is_known=bool(known.chances))


def words_of_texts(texts: Sequence[tuple[str, str]]) -> Iterator[TextWords]:
    """The words of each text, given as (introduction, text), tokenized in one batch."""
    introductions = dict.fromkeys(introduction for introduction, _ in texts)
    parts = (part for _, text in texts for part in _prose_and_code(text))
    forms = map(index_form, (*introductions, *parts))
    keys = map(frozenset, keys_in(list(forms)))
    counted = {introduction: next(keys) for introduction in introductions}
    for introduction, _ in texts:
        prose, code = next(keys), next(keys)
        yield TextWords(prose, code - prose, counted[introduction])


def _prose_and_code(text: str) -> tuple[str, str]:
    return _CODE.sub(" ", text), " ".join(found[0] for found in _CODE.finditer(text))
