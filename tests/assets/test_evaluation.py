"""What the measures count as right, well-formed and copied."""

from pathlib import Path
from random import Random

import pytest

from assets.recipe.evaluation import copies_from, is_invented, misled_questions, noted_questions
from assets.recipe.material_files import read_evening_questions, read_tasks
from assets.recipe.pages import Split, parse_page, read_pages, split
from assets.recipe.reader import UNFINISHED, command_of, fraction, name_of, well_formed
from assets.recipe.turns import answer_how

ANSWER = answer_how("tar", "Extract an archive", "tar xf {{a.tar}}")


def test_name_and_command_of_an_answer() -> None:
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


def test_copying_a_command_or_a_name_counts() -> None:
    page = parse_page("# tar\n\n> It packs.\n\n- Do:\n\n`tar xf {{a.tar}}`\n", "common")
    assert page is not None
    assert copies_from(ANSWER, page)
    assert copies_from(answer_how("tar", "Do", "tar invented"), page)
    assert copies_from(answer_how("other", "Do", "tar xf {{a.tar}}"), page)
    assert not copies_from(answer_how("zip", "Pack", "zip a.zip"), page)


@pytest.mark.parametrize(
    ("command", "wanted", "question", "invented"),
    [
        ("cp a.txt <target>", "cp <source> <target>", "copy a file", True),
        ("cp a.txt <target>", "cp <source> <target>", "copy A.txt", False),
        ("cp <source> <target>", "cp <source> <target>", "copy a file", False),
        ("cp --recursive <source> <target>", "cp <source> <target>", "copy a file", False),
        ("sed -n '42,<20>p' <file>", "sed -n '<5,10>p' <file>", "show line 42", False),
        ("sed -n '42,<20>p' <file>", "sed -n '<5,10>p' <file>", "show a line", True),
        ("head -n 1 <file>", "head -n <count> <file>", "show the first line of 10", True),
        ("head -n 1 <file>", "head -n <count> <file>", "show 1 line", False),
        ("mv a b", "cp <source> <target>", "copy a file", False),
    ],
)
def test_what_no_question_names_is_invented(
    command: str, wanted: str, question: str, invented: bool
) -> None:
    assert is_invented(command, wanted, question) == invented


def test_fraction_of_nothing_is_zero() -> None:
    assert fraction([]) == 0
    assert fraction([True, False]) == 0.5


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
    pages, files = read_pages(checkout), ("everyday.txt", "harmless.txt")
    phrases = {p for file in files for task in read_tasks(pages, file) for p in task.phrases}
    assert len(asked) >= 30
    assert not asked & phrases
