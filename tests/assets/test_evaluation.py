"""What the measures call right, well-formed and copied."""

from pathlib import Path
from random import Random

import pytest

from assets.recipe.evaluation import (
    command_of,
    copied,
    misled_questions,
    name_of,
    noted_questions,
    share,
    well_formed,
)
from assets.recipe.material_files import read_evening_questions, read_tasks
from assets.recipe.pages import Split, parse_page, read_pages, split
from assets.recipe.reader import UNFINISHED
from assets.recipe.replies import use

ANSWER = use("tar", "Extract an archive", "tar xf {{a.tar}}")


def test_an_answer_is_taken_apart() -> None:
    assert name_of(ANSWER) == "tar"
    assert command_of(ANSWER) == "tar xf {{a.tar}}"
    assert (name_of("Hello."), command_of("Hello.")) == ("", "")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (ANSWER, True),
        ("Hello.", True),
        ("", False),
        ("```sh\nls", False),
        (ANSWER + UNFINISHED, False),
        ("Hello.<|im_start|>user", False),
    ],
)
def test_well_formed(answer: str, right: bool) -> None:
    assert well_formed(answer) is right


def test_copying_is_taking_a_command_or_the_name() -> None:
    page = parse_page("# tar\n\n> It packs.\n\n- Do:\n\n`tar xf {{a.tar}}`\n", "common")
    assert page is not None
    assert copied(ANSWER, page)
    assert copied(use("tar", "Do", "tar invented"), page)
    assert copied(use("other", "Do", "tar xf {{a.tar}}"), page)
    assert not copied(use("zip", "Pack", "zip a.zip"), page)


def test_share_of_nothing_is_nothing() -> None:
    assert share([]) == 0
    assert share([True, False]) == 0.5


def test_noted_questions_have_their_answer_in_the_notes(checkout: Path) -> None:
    pages = read_pages(checkout)
    for question in noted_questions(pages, 30, Random(0)):
        assert command_of(question.wanted) in question.chat[0].text


def test_misled_questions_do_not(checkout: Path) -> None:
    parts: Split = split(read_pages(checkout))
    for question in misled_questions(parts, 30, Random(0)):
        assert question.wrong is not None
        assert f"# {name_of(question.wanted)}\n" not in question.chat[0].text


def test_no_evening_question_is_a_training_phrase(checkout: Path) -> None:
    asked = {prompt.lower().rstrip("?") for prompt, _ in read_evening_questions()}
    phrases = {each for task in read_tasks(read_pages(checkout)) for each in task.phrases}
    assert len(asked) >= 30
    assert not asked & phrases
