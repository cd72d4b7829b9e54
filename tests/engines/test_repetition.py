"""Loops are found, at the same token with drafts and without; what is merely alike goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from engines.decode import StopCriteria
from engines.drafters.prompt_lookup import PromptLookup
from engines.repetition import CHECK_TOKENS, MIN_EARLIER, WINDOW, is_looping
from engines.sampler import Sampling
from engines.step import FINISH_REPETITION
from tests.engines.test_decode import NEVER, fixed, run, tokens

PROMPT = [7, 8, 9]


def ends_at(answer: Sequence[int], prompt: Sequence[int] = PROMPT) -> int:
    """Tokens of `answer` up to where a loop is found; 0 for none."""
    whole, start = [*prompt, *answer], len(prompt)
    lengths = range(1, len(answer) + 1)
    return next((n for n in lengths if is_looping(whole[: start + n], start)), 0)


def text(length: int, seed: int = 1) -> list[int]:
    """Tokens that do not repeat."""
    return random.Random(seed).sample(range(10, 100_000), length)


@pytest.mark.parametrize("period", [1, 2, 7, 33, 60, 150, 256])
@pytest.mark.parametrize("before", [0, 90, 301])
def test_a_loop_ends_soon_after_it_is_one(period: int, before: int) -> None:
    answer = [*text(before), *text(period, seed=2) * 2000][: before + 3000]
    enough = MIN_EARLIER * period + WINDOW
    assert before + WINDOW * 0.8 + MIN_EARLIER * period <= ends_at(answer)
    assert ends_at(answer) < before + enough + CHECK_TOKENS


def noisy(line: Sequence[int], lines: int, every: int) -> list[int]:
    """The same line again and again, with another token now and then."""
    answer = list(line) * lines
    for at in range(every, len(answer), every):
        answer[at] = 200_000 + at
    return answer


@pytest.mark.parametrize("every", [60, 97, 150])
def test_a_loop_whose_period_is_broken_now_and_then_ends(every: int) -> None:
    answer = noisy(text(44, seed=2), 30, every)
    assert 0 < ends_at(answer) <= MIN_EARLIER * 44 + 2 * WINDOW


def test_a_line_that_is_changed_as_often_as_it_comes_is_no_loop() -> None:
    assert ends_at(noisy(text(25, seed=2), 60, 25)) == 0


@pytest.mark.parametrize(
    "answer",
    [
        text(3000),
        # A list of similar lines: the numbers and names differ.
        [token for number in range(200) for token in (1, 2, 3, 4, 1000 + number, 5)],
        # Ten empty rows of a table, then the rest.
        [*text(80), *text(19, seed=2) * 10, *text(500, seed=3)],
        # A verse and its refrain.
        [token for verse in range(9) for token in (*text(60, seed=verse), *text(50, seed=99))],
        # Four times the same paragraph.
        text(100) * 4,
        # A file that is shown once more, and once more.
        [*text(700), *text(30, seed=4), *text(700), *text(30, seed=5), *text(700)],
    ],
)
def test_what_is_alike_but_no_loop_goes_on(answer: list[int]) -> None:
    assert ends_at(answer) == 0


def test_what_is_copied_from_the_prompt_goes_on_but_not_beyond_it() -> None:
    zeros = [3, 4] * 300
    prompt = [*PROMPT, *zeros, *PROMPT]
    assert ends_at([*text(9), *zeros, *text(9)], prompt) == 0
    found = ends_at([*text(9), *zeros, *zeros], prompt)
    assert 9 + len(zeros) <= found <= 9 + len(zeros) + WINDOW + CHECK_TOKENS


def test_drafted_and_plain_answers_end_at_the_same_token() -> None:
    def ends(context: Sequence[int], start: int) -> str:
        return FINISH_REPETITION if is_looping(context, start) else ""

    ending = StopCriteria(NEVER, 2000, ends)
    plain = run([1, 2, 3], [], fixed(0), Sampling(0.0), ending)
    drafted = run([1, 2, 3], [PromptLookup()], fixed(9), Sampling(0.0), ending)
    assert tokens(drafted) == tokens(plain)
    assert drafted[-1].finish == plain[-1].finish == FINISH_REPETITION
    assert WINDOW <= len(tokens(plain)) < 2000
    assert len(drafted) < len(plain)
