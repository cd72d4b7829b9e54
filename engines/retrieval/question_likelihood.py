"""How much likelier a question is if a certain text answers it: query likelihood.

A language model of questions, by translation from the words of texts (Berger and Lafferty,
"Information Retrieval as Statistical Translation", SIGIR 1999; Xue, Jeon and Croft, SIGIR 2008): a
text that says "remove" is asked for with "delete", "clear" or "get rid of", in shares that
`translations` knows. No list of stop words is needed: a common word of questions is as likely with
any text.

A language model that reads a text as a whole knows more, and takes much longer (Sachan et al.,
"Improving Passage Retrieval with Zero-Shot Question Generation", EMNLP 2022): it orders the best
few.

Owns how a question's words become chances, and how these add up. Refuses to know where texts begin
and end (`excerpts`) and which are candidates (`reranking`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Protocol

from datastores.passages.word_counts import key_of, keys_in, terms_in
from datastores.search_form import index_form, is_gram
from engines.retrieval.protocol import QuestionModel
from engines.retrieval.question_words import MAX_QUERY_WORDS, MIN_STATISTICS, words_of
from engines.retrieval.spellings import characters_of_unheld
from engines.retrieval.translations import Translations

INTRODUCTION_WEIGHT, CODE_WEIGHT = 0.5, 0.3
"""Of what introduces a text, and of its code, relative to its prose; each is a language model of
its own. Introductions at .3 or .8 find up to .005 fewer of people's own questions first."""
UNSEEN_CHANCE = 0.3
"""That a question has a text's own word, of which nothing is known."""
MIN_BACKGROUND = 5e-5
"""The share of words in texts and questions that a rare word is taken to have at least."""
PASSAGE_WORDS = 60
"""Different words in a passage of 1,024 characters, about."""
COMMON_WORD, RARE_WORD = 2.0, 5.0
"""A word that can add so little to a score, or less, counts nothing in a fit; one that can add so
much counts whole."""

MODEL_TEXTS = 8
"""Texts that are given to a model."""
MODEL_WEIGHT = 0.3
"""Of a model's log-likelihood, in which common words count in full, relative to the score."""

_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|(?<!`)```.*", re.DOTALL)
"""Spans and fences, also one that a cut left open."""


class WordStatistics(Protocol):
    """How common words are among passages."""

    def __len__(self) -> int:
        """How many passages there are."""
        ...

    def frequency(self, word: str) -> int:
        """How many passages hold `word`."""
        ...


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of a question.

    Attributes:
        chances: by key of a text's word, the chance of this one in a question for it.
        background: its chance in a question about anything.
        is_known: whether translations know it.
    """

    chances: Mapping[int, float]
    background: float
    is_known: bool = False

    @property
    def weight(self) -> float:
        """What it counts in a fit: from 0 for a word of any question to 1 for a rare one."""
        most = log1p(UNSEEN_CHANCE / self.background)
        return min(max((most - COMMON_WORD) / (RARE_WORD - COMMON_WORD), 0.0), 1.0)

    def likelihood(self, text: TextWords) -> float:
        """Its chance in a question that `text` answers, relative to the background."""
        chances = self.chances
        total = _mean(chances, text.prose)
        total += CODE_WEIGHT * _mean(chances, text.code)
        total += INTRODUCTION_WEIGHT * _mean(chances, text.introduction)
        return total / self.background


@dataclass(frozen=True, slots=True)
class TextWords:
    """The keys of the different words of a text; `code` without those that `prose` has."""

    prose: Collection[int]
    code: Collection[int]
    introduction: Collection[int] = ()


class AskedQuestion:
    """A question to which texts are compared."""

    def __init__(
        self, text: str, words: Sequence[AskedWord], model: QuestionModel | None = None
    ) -> None:
        self._text = text
        self._words = words
        self._model = model

    @property
    def is_known(self) -> bool:
        """Whether translations know most of the words, so that common ones tell from rare ones."""
        known = sum(word.is_known for word in self._words)
        return 2 * known >= len(self._words)

    def score(self, text: TextWords) -> float:
        """A smoothed log-likelihood ratio, summed over the words; never negative."""
        return sum(log1p(word.likelihood(text)) for word in self._words)

    def fit(self, score: float) -> float:
        """A score in relation to the words, by their weights: comparable among questions, however
        politely they are asked."""
        return score / (sum(word.weight for word in self._words) + 1)  # one word proves little

    def order(self, scores: Sequence[float], texts: Sequence[str]) -> list[int]:
        """The places of `texts`, which stand by falling score, in the order that counts.

        The first `MODEL_TEXTS` also go by what the model says of them, if there is one; equal texts
        keep their order. Of other languages, whose words have no translations, it knows nothing.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        places, first = list(range(len(texts))), texts[:MODEL_TEXTS]
        if self._model is None or len(first) < 2 or not self.is_known:
            return places
        # A text in another place of a batch has slightly other logits: each is scored once.
        unique = list(dict.fromkeys(first))
        likely = dict(zip(unique, self._model.log_likelihoods(self._text, unique), strict=True))
        total = [
            score + MODEL_WEIGHT * likely[text] for score, text in zip(scores, first, strict=False)
        ]
        return [*sorted(places[: len(first)], key=lambda n: -total[n]), *places[len(first) :]]


def _mean(chances: Mapping[int, float], words: Collection[int]) -> float:
    found = sum(chances[key] for key in words if key in chances)
    return found / (1 + len(words)) if found else 0.0


def parse_question(
    query: str,
    translations: Translations,
    statistics: WordStatistics,
    model: QuestionModel | None = None,
) -> AskedQuestion:
    """What `query` asks for, by its different words.

    Args:
        model: orders the best texts; None for their words alone.

    Raises:
        StoreError: the translations or the statistics cannot be read.
    """
    stems = stems_of(query)
    # A bigram that no passage holds spans two words.
    beside = characters_of_unheld([word for word, _ in stems], statistics.frequency)
    stems = [one for one in stems if not is_gram(one[0]) or statistics.frequency(one[0])]
    words = [
        _asked(word, stem, translations, statistics)
        for word, stem in (*stems, *zip(beside, beside, strict=True))
    ]
    return AskedQuestion(query, words, model)


def stems_of(query: str) -> list[tuple[str, str]]:
    """The first `MAX_QUERY_WORDS` different words of a question, each with its stem, in order.

    Of a name that the index sees several words in ("snake_case"), these.
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
    """The words of each text, given with its introduction; counted together."""
    introductions = {introduction: () for introduction, _ in texts}
    keys = iter(
        keys_in(
            [
                *map(index_form, introductions),
                *(index_form(part) for _, text in texts for part in _prose_and_code(text)),
            ]
        )
    )
    counted = {introduction: next(keys) for introduction in introductions}
    for introduction, _ in texts:
        prose, code = next(keys), next(keys)
        yield TextWords(prose, set(code).difference(prose), counted[introduction])


def _prose_and_code(text: str) -> tuple[str, str]:
    return _CODE.sub(" ", text), " ".join(found[0] for found in _CODE.finditer(text))
