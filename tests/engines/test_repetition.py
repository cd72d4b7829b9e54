"""Loops are found, at the same token with drafts and without; what is merely alike goes on."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from engines.decode import StopCriteria
from engines.drafters.prompt_lookup import PromptLookup
from engines.repetition import (
    CHECK_TOKENS,
    COUNTED_CHECK_TOKENS,
    MIN_EARLIER,
    WINDOW,
    is_counting,
    is_looping,
)
from engines.sampler import Sampling
from engines.step import FINISH_REPETITION
from tests.engines.test_decode import NEVER, fixed, run, tokens

PROMPT = [7, 8, 9]
ROOT = Path(__file__).parents[2]


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


PIECES: list[str] = []
"""The text of each token of the texts below."""


def encoded(content: str) -> list[int]:
    """Words with the blank before them, digits, and other characters, as tokenizers divide them."""
    ids = {piece: token for token, piece in enumerate(PIECES)}
    found = re.findall(r" ?[^\W\d_]+|[\W\d_]", content)
    PIECES.extend(piece for piece in dict.fromkeys(found) if piece not in ids)
    ids = {piece: token for token, piece in enumerate(PIECES)}
    return [ids[piece] for piece in found]


def lines_read(lines: Sequence[str], prompt: str = "") -> int:
    """How many lines of an answer are there when a counting loop is found; 0 for none."""
    start = len(encoded(prompt))
    tokens = encoded(prompt + "\n".join(lines))
    lengths = range(start + 1, len(tokens) + 1)
    end = next((n for n in lengths if is_counting(tokens[:n], start, text_of)), 0)
    return "".join(map(PIECES.__getitem__, tokens[start:end])).count("\n")


def text_of(token: int) -> str:
    return PIECES[token].strip()


@pytest.mark.parametrize(
    ("line", "step", "most"),
    [
        ("{0}. The user is logged in to the form again.", 1, 50),
        ("{0}. Click on the button that saves the page.\n{1}. The page is saved.", 2, 80),
        ("Then there were {0} boats on the wide lake, and {1} in the harbour.", -1, 50),
        ("print(add_two_numbers_and_print({0}, {1}))", 2, 90),
    ],
)
def test_a_loop_that_counts_ends(line: str, step: int, most: int) -> None:
    lines = "\n".join(line.format(500 + step * n, 501 + step * n) for n in range(100)).split("\n")
    assert 24 <= lines_read(lines) <= most


@pytest.mark.parametrize(
    "lines",
    [
        [f"Day {n}: Walk for {20 + n} minutes and drink a glass of water." for n in range(1, 25)],
        [f"Day {n}: Walk for {n * n % 37} minutes in the park." for n in range(1, 200)],
        [f'{{"id": {n}, "name": "User {n}", "mail": "user{n}@example.com"}},' for n in range(60)],
        [f'{{"time": "noon", "place": "harbour", "wind": {n * n % 41}}},' for n in range(200)],
        [f"| {n} | {n * n} | {n**3} |" for n in range(200)],
        [f"{n}." for n in range(400)],
        [f"    VALUE_{n} = {n}," for n in range(200)],
        [f"{n}. What is {n * 7 % 31} and {n * 5 % 23} in all?" for n in range(150)],
        [f"    assert fibonacci({n}) == {n * n % 97}" for n in range(200)],
    ],
)
def test_lists_tables_and_code_with_numbers_go_on(lines: Sequence[str]) -> None:
    assert lines_read(lines) == 0


def test_counting_lines_that_stand_in_the_prompt_are_copied() -> None:
    lines = [f"{n}. The user is logged in to the form again." for n in range(60)]
    assert lines_read(lines, "\n".join(lines) + "\n") == 0


@pytest.mark.parametrize("page", sorted(ROOT.rglob("*.md")), ids=lambda page: str(page.name))
def test_no_page_of_this_program_is_a_loop(page: Path) -> None:
    tokens = encoded(page.read_text("utf-8"))
    for length in range(0, len(tokens), COUNTED_CHECK_TOKENS):
        assert not is_counting(tokens[:length], 0, text_of)
        assert not is_looping(tokens[:length], 0)


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
