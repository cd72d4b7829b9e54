"""Questions in many wordings, and the wordings kept from training."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.recipe import read_lines
from assets.recipe.wording import Style, ask, concrete, gerund, keywords, reword, slip

TASK = "List all files in a directory, including hidden ones (recursively)"


@pytest.mark.parametrize(
    ("phrase", "wanted"),
    [
        ("list files", "listing files"),
        ("create a file", "creating a file"),
        ("see it", "seeing it"),
        ("get a name", "getting a name"),
    ],
)
def test_gerund(phrase: str, wanted: str) -> None:
    assert gerund(phrase) == wanted


def test_keywords_leave_small_words_out() -> None:
    words = keywords("find the size of a directory", Random(0))
    assert sorted(words.split()) == ["directory", "find", "size"]


def test_one_task_is_asked_in_many_ways() -> None:
    rng = Random(1)
    asked = {ask(reword(TASK, rng, Style()), rng, Style()) for _ in range(200)}
    assert len(asked) > 150


def test_the_command_is_named_when_wanted() -> None:
    rng = Random(2)
    asked = [ask("list files", rng, Style(concrete=0.0, slips=0.0), "wibble") for _ in range(50)]
    assert all("wibble" in text.lower() for text in asked)


@pytest.mark.parametrize(
    "phrase", ["where am I?", "my disk is full", "docker hangs, stop it", "disk space in gb"]
)
def test_what_is_no_imperative_keeps_its_form(phrase: str) -> None:
    rng = Random(3)
    texts = {ask(phrase, rng, Style(concrete=0.0, slips=0.0)).lower() for _ in range(50)}
    assert texts == {phrase.lower()}


def test_a_phrase_gets_a_frame_unless_it_is_not_to() -> None:
    rng, style = Random(4), Style(concrete=0.0, slips=0.0)
    assert len({ask("list files", rng, style).lower() for _ in range(50)}) > 10
    assert {ask("list files", rng, style, framed=False).lower() for _ in range(50)} == {
        "list files"
    }


def test_a_vague_thing_may_be_named() -> None:
    rng = Random(5)
    named = {concrete("delete a file", rng) for _ in range(50)}
    assert "delete report.pdf" in named
    assert all(text.startswith("delete ") for text in named)
    assert concrete("sleep", rng) == "sleep"


def test_fresh_frames_and_synonyms_never_occur_in_training() -> None:
    frames = read_lines("frames.txt")
    fresh = {frame[2:] for frame in frames if frame.startswith("+ ")}
    assert fresh
    assert not fresh & set(frames)
    rng = Random(4)
    drawn = {ask("zip it", rng, Style(slips=0.0)).lower() for _ in range(2000)}
    kept = {frame.format(do="zip it", doing="", keys="").lower() for frame in fresh}
    assert len(drawn) > 50
    assert not drawn & kept
    usual = " ".join(reword("Delete a specific file", rng, Style(change=1.0)) for _ in range(99))
    held = " ".join(
        reword("Delete a specific file", rng, Style(fresh=True, change=1.0)) for _ in range(99)
    )
    assert "chosen" in held
    assert "chosen" not in usual


@given(st.text(max_size=80), st.integers(0, 99))
def test_a_slip_changes_one_letter_at_most(text: str, seed: int) -> None:
    slipped = slip(text, Random(seed))
    assert abs(len(slipped) - len(text)) <= 1
    assert (slipped == text) or any(len(word) >= 5 for word in text.split())


@given(st.text(min_size=1, max_size=120), st.integers(0, 99))
def test_any_task_can_be_asked(task: str, seed: int) -> None:
    rng = Random(seed)
    phrase = reword(task, rng, Style())
    assert isinstance(ask(phrase or "do it", rng, Style()), str)
