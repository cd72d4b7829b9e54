"""The hand-written questions: what counts as right, and that training never reads them."""

from pathlib import Path
from random import Random

import pytest

from assets.recipe import read_lines
from assets.recipe.follow_ups import changes, explanations, namings
from assets.recipe.judged import (
    FollowUp,
    NotedQuestion,
    ValueQuestion,
    read_follow_ups,
    read_noted_questions,
    read_value_questions,
)
from assets.recipe.material_files import read_tasks
from assets.recipe.outside import read_outside
from assets.recipe.pages import is_held_out, read_pages
from assets.recipe.retrieval import PageStatistics
from assets.recipe.turns import answer_how

LIST = "Use `ls`. List files:\n\n```sh\nls {{[-a|--all]}} {{path/to/directory}}\n```"


def test_there_are_as_many_questions_as_the_issue_asks_for() -> None:
    assert len(read_lines("judged/outside.txt")) >= 200
    assert len(read_value_questions()) >= 100
    assert len(read_follow_ups()) >= 60
    assert len(read_lines("judged/notes.txt")) >= 100
    assert len(read_lines("judged/everyday.txt")) >= 500


def test_a_value_question_wants_the_command_and_every_value() -> None:
    question = ValueQuestion("last 5 lines of a.log", ("tail",), ("5", "a.log"))
    assert question.is_right(answer_how("tail", "Show lines", "tail -n 5 a.log"))
    assert not question.is_right(answer_how("tail", "Show lines", "tail -n <count> a.log"))
    assert not question.is_right(answer_how("head", "Show lines", "head -n 5 a.log"))
    assert not question.is_right("tail -n 5 a.log")


def test_a_follow_up_is_a_changed_command_or_an_explanation() -> None:
    hidden = FollowUp(("list files", "hidden too?"), r"ls .*--all")
    assert hidden.is_right(LIST)
    assert not hidden.is_right(answer_how("ls", "List files", "ls <directory>"))
    explained = FollowUp(("list files", "explain that"), "explains: list")
    assert explained.is_right("It uses `ls`. List files.")
    assert not explained.is_right(LIST)


def test_notes_hold_the_right_chunk_among_others_or_not_at_all(checkout: Path) -> None:
    pages = read_pages(checkout)
    page = pages[3]
    question = NotedQuestion(f"{page.name} {page.examples[1].plain}", page, page.examples[1])
    statistics, rng = PageStatistics(each.markdown for each in pages), Random(0)
    for _ in range(20):
        (turn,) = question.notes(pages, statistics, rng, covered=True)
        notes = turn.text
        assert f"`{page.examples[1].command}`" in notes
        assert 1 <= notes.count("> Works on") <= 4
        wrong = question.notes(pages, statistics, rng, covered=False)
        assert not any(f"# {page.name}\n" in turn.text for turn in wrong)


def test_questions_about_missing_pages_are_left_out(checkout: Path) -> None:
    assert read_noted_questions(read_pages(checkout)) == []


def test_no_judged_question_is_a_training_phrase(checkout: Path) -> None:
    def plain(text: str) -> str:
        return text.lower().strip("?!. ")

    judged = {plain(line) for line in read_lines("judged/outside.txt")}
    judged |= {plain(line) for line in read_lines("judged/everyday.txt")}
    judged |= {plain(line) for line in read_lines("judged/harmless.txt")}
    judged |= {plain(each.question) for each in read_value_questions()}
    pages, files = read_pages(checkout), ("everyday.txt", "harmless.txt")
    phrases = {plain(p) for file in files for task in read_tasks(pages, file) for p in task.phrases}
    followed = {plain(each.questions[-1]) for each in read_follow_ups()}
    trained = {plain(prompt) for change in changes() for prompt in change.prompts}
    trained |= {plain(prompt) for prompt in explanations()}
    trained |= {plain(said) for each in namings().values() for said in each}
    assert judged & phrases == set()
    outside = read_outside()
    assert judged & {plain(line) for line in (*outside.templates, *outside.sentences)} == set()
    assert followed & trained == set()


def test_no_task_is_one_of_a_held_out_page(checkout: Path) -> None:
    pages = read_pages(checkout)
    tasks = [*read_tasks(pages), *read_tasks(pages, "harmless.txt")]
    assert len(tasks) > 2_000
    assert {task.name for task in tasks if is_held_out(task.name)} == set()


@pytest.mark.parametrize("seed", range(5))
def test_slots_of_outside_questions_are_filled(seed: int) -> None:
    outside, rng = read_outside(), Random(seed)
    questions = {outside.question(rng) for _ in range(200)}
    assert len(questions) > 150
    assert not any("{" in question for question in questions)
    assert len({outside.answer(rng) for _ in range(100)}) > 3
