"""Query likelihood: what a question's words, others for them and their rarity are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.retrieval.question_likelihood import (
    CODE_WEIGHT,
    INTRODUCTION_WEIGHT,
    MIN_BACKGROUND,
    MODEL_TEXTS,
    MODEL_WEIGHT,
    PASSAGE_WORDS,
    UNSEEN_CHANCE,
    AskedQuestion,
    parse_question,
    stems_of,
    words_of_texts,
)
from engines.retrieval.question_words import MAX_QUERY_WORDS, MIN_STATISTICS
from engines.retrieval.translations import Translations


class Common:
    """Every word is in so many of 2,000 passages."""

    def __init__(self, frequency: int = 0) -> None:
        self.passages = frequency

    def __len__(self) -> int:
        return 2000

    def frequency(self, word: str) -> int:
        return self.passages


def question(
    text: str, lines: Mapping[str, str] | None = None, frequency: int = 0
) -> AskedQuestion:
    return parse_question(text, Translations(lines), Common(frequency))


def score(asked: AskedQuestion, text: str, introduction: str = "") -> float:
    (words,) = words_of_texts([(introduction, text)])
    return asked.score(words)


def test_each_part_of_a_text_is_a_language_model_of_its_own() -> None:
    asked, one = question("walrus"), UNSEEN_CHANCE / MIN_BACKGROUND
    assert score(asked, "a walrus") == pytest.approx(log1p(one / 3))
    assert score(asked, "the `walrus feed` ") == pytest.approx(log1p(CODE_WEIGHT * one / 3))
    assert score(asked, "```\nwalrus\n```") == pytest.approx(log1p(CODE_WEIGHT * one / 2))
    introduced = score(asked, "the zoo", "Walrus:")
    assert introduced == pytest.approx(log1p(INTRODUCTION_WEIGHT * one / 2))
    assert score(asked, "walrus: `walrus`") == pytest.approx(log1p(one / 2)), "counted once"
    assert score(asked, "a lynx") == 0.0


def test_another_word_counts_by_its_chance() -> None:
    asked = question("erase", {"eras": "0 remov:1000 delet:500"})
    assert score(asked, "remove") == pytest.approx(log1p(0.1 / 2 / MIN_BACKGROUND))
    assert score(asked, "delete, remove") == pytest.approx(log1p(0.15 / 3 / MIN_BACKGROUND))


def test_a_word_counts_less_the_more_questions_or_passages_have_it() -> None:
    often = {"walru": "4000 walru:3000"}
    assert score(question("walrus", often), "walrus") == pytest.approx(log1p(0.3 / 2 / 0.002))
    shared = 1500 / (2000 * PASSAGE_WORDS)
    common = score(question("walrus", often, 1500), "walrus")
    assert common == pytest.approx(log1p(0.3 / 2 / ((0.004 + shared) / 2)))
    unknown = score(question("walrus", {}, 1500), "walrus")
    assert unknown == pytest.approx(log1p(UNSEEN_CHANCE / 2 / shared))
    assert MIN_STATISTICS < 2000


def test_a_fit_does_not_grow_with_the_number_of_words() -> None:
    short, long = question("walrus"), question("walrus walrus giraffe lynx")
    assert short.fit(score(short, "walrus")) == pytest.approx(score(short, "walrus") / 2)
    assert long.fit(4.0) == 1.0, "three different words"
    assert question("").fit(0.0) == 0.0
    polite = dict.fromkeys(("could", "you", "tell", "me"), "100000 polite:1")
    asked = question("could you tell me: walrus", polite)
    assert asked.fit(4.0) == question("walrus").fit(4.0) == 2.0, "words of any question"


def test_words_keep_their_order_and_a_long_question_loses_its_end() -> None:
    assert stems_of("What's deleting the deleted file's name?") == [
        ("what", "what"), ("deleting", "delet"), ("the", "the"), ("file", "file"), ("name", "name"),
    ]  # fmt: skip
    assert stems_of("snake_case") == [("case", "case"), ("snake", "snake")], "as the index does"
    long = question(" ".join(f"word{number}" for number in range(MAX_QUERY_WORDS + 1)))
    assert score(long, f"word{MAX_QUERY_WORDS - 1}") > 0.0 == score(long, f"word{MAX_QUERY_WORDS}")


@given(st.text(max_size=40), st.text(max_size=80), st.text(max_size=40))
def test_any_text_can_be_compared_with_any_question(asked: str, text: str, above: str) -> None:
    read = question(asked)
    alone = score(read, text)
    assert 0.0 <= alone <= score(read, text, above)


KNOWN = {"walru": "5 walru:10"}


class Prefers:
    """Finds the question likely after one text alone."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
        self.asked.append((question, tuple(texts)))
        return [0.0 if text == self.text else -5.0 for text in texts]


def ordered(model: Prefers, query: str, scores: Sequence[float], texts: Sequence[str]) -> list[int]:
    return parse_question(query, Translations(KNOWN), Common(), model).order(scores, texts)


def test_a_model_orders_what_scores_nearly_alike() -> None:
    gap = 5 * MODEL_WEIGHT
    assert ordered(Prefers("b"), "walrus", [9.0, 9.1 - gap, 0.0], ["a", "b", "c"]) == [1, 0, 2]
    assert ordered(Prefers("b"), "walrus", [9.0, 8.9 - gap, 0.0], ["a", "b", "c"]) == [0, 1, 2]
    assert question("walrus", KNOWN).order([2.0, 1.0], ["a", "b"]) == [0, 1]


def test_a_model_reads_the_best_few_in_languages_that_it_knows() -> None:
    model, texts = Prefers("text 9"), [f"text {number}" for number in range(10)]
    assert ordered(model, "walrus", [1.0] * 10, texts) == list(range(10)), "not read, it stays"
    assert model.asked == [("walrus", tuple(texts[:MODEL_TEXTS]))]
    ordered(model, "wo ist das Walross", [1.0] * 10, texts)
    ordered(model, "walrus", [1.0], texts[:1])
    ordered(model, "walrus", [], [])
    assert len(model.asked) == 1
