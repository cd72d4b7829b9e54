"""The kinds of chat: what is asked, what is in the notes, what the right answer is."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from assets.recipe import from_memory, with_notes
from assets.recipe.destructive import warning
from assets.recipe.follow_ups import follow_up
from assets.recipe.material_files import Task
from assets.recipe.pages import Example, Page, disguise, invent_page, read_pages, split
from assets.recipe.placeholders import readable
from assets.recipe.prepare import KINDS, make_chat, make_pool
from assets.recipe.reader import command_of, name_of, well_formed
from assets.recipe.turns import (
    DESTRUCTIVE_WEIGHT,
    EXCERPTS_HEADER,
    HEADER,
    NOT_COVERED,
    Chat,
    Kind,
    Pool,
    ask_how,
    notes_message,
)
from assets.recipe.wording import Style
from engines.retrieval.excerpts import describe_fit


@pytest.fixture(scope="module")
def pool(checkout: Path) -> Pool:
    return make_pool(split(read_pages(checkout)))


def _draw(kind: Kind, pool: Pool, count: int = 60) -> list[Chat]:
    return [kind(pool, Random(seed), Style()) for seed in range(count)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_asks_and_answers_in_turn(kind: Kind, pool: Pool) -> None:
    weight = with_notes.ANSWER_WEIGHT if kind.__module__ == with_notes.__name__ else 1.0
    for chat in _draw(kind, pool):
        turns = [turn for turn in chat if turn.role != "system"]
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
        assert all(turn.role != "system" for turn in chat[1:-3])
        assert all(turn.weight == weight for turn in turns[-1::-2] if chat[0] not in turns)
        assert all(turn.weight == 0.0 for turn in turns[::2])


def test_a_destructive_answer_from_memory_weighs_less() -> None:
    rng, page = Random(1), Page("rm", "common", "Remove files.", (), "")
    for command, noted, weight in (
        ("rm {{path/to/file}}", False, DESTRUCTIVE_WEIGHT),
        ("rm --help", False, 1.0),
        ("rm {{path/to/file}}", True, 1.0),
    ):
        example = Example("Remove a file", command)
        _, answer = ask_how(page, example, rng, Style(), noted=noted)
        assert answer.weight == weight


def _deleting(name: str) -> Example:
    return Example("Delete all the files in a directory", f"{name} rm {{{{path/to/directory}}}}")


@pytest.mark.parametrize("kind", [from_memory.recall, from_memory.recall_more, from_memory.glance])
def test_from_memory_a_destructive_command_is_asked_for_by_name(kind: Kind, pool: Pool) -> None:
    pages = tuple(replace(page, examples=(_deleting(page.name),) * 3) for page in pool.known)
    own = tuple(Task(page.name, page.examples[0], ("get rid of files",)) for page in pages)
    told = replace(pool, core=pages, known=pages, note_pages=pages, tasks=(), own_words=own)
    for chat in (kind(told, Random(seed), Style(slips=0.0)) for seed in range(200)):
        turns = [turn for turn in chat if turn.role != "system"]
        for question, answer in zip(turns[::2], turns[1::2], strict=True):
            if warning(command_of(answer.text)):
                assert name_of(answer.text) in question.text.lower()


def test_an_everyday_destructive_command_is_asked_for_without_its_name(pool: Pool) -> None:
    page = replace(pool.known[0], examples=(_deleting(pool.known[0].name),))
    task = Task(page.name, page.examples[0], ("get rid of files",))
    told = replace(pool, core=(page,), known=(page,), note_pages=(page,), tasks=(task,))
    asked = [chat[-2].text for chat in _draw(from_memory.recall, told, 200)]
    assert any(page.name not in question for question in asked)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_answer_is_well_formed(kind: Kind, pool: Pool) -> None:
    for chat in _draw(kind, pool):
        for turn in chat:
            assert turn.text
            assert turn.text == turn.text.strip()
            assert turn.role != "assistant" or well_formed(turn.text)


@pytest.mark.parametrize(
    "kind", [with_notes.several_pages, with_notes.one_page, with_notes.drill_own_words]
)
def test_a_command_is_in_the_notes_unless_the_answer_denies_it(kind: Kind, pool: Pool) -> None:
    covered = denied = 0
    for chat in _draw(kind, pool, 300):
        for turn in chat[2::2]:
            if turn.text.startswith(NOT_COVERED):
                denied += 1
                assert f"# {name_of(turn.text)}\n" not in chat[0].text
            else:
                covered += bool(command_of(turn.text))
                assert command_of(turn.text) in chat[0].text
    assert covered > 50
    assert denied > 50


def test_the_first_question_is_no_more_covered_than_the_last(pool: Pool) -> None:
    chats = [chat for chat in _draw(with_notes.one_page, pool, 600) if len(chat) > 3]
    first = sum(chat[2].text.startswith(NOT_COVERED) for chat in chats) / len(chats)
    last = sum(chat[-1].text.startswith(NOT_COVERED) for chat in chats) / len(chats)
    assert abs(first - last) < 0.1


def test_the_length_of_notes_does_not_reveal_whether_they_cover_the_question(pool: Pool) -> None:
    chats = sorted(_draw(with_notes.one_page, pool, 600), key=lambda chat: len(chat[0].text))
    shares = [
        sum(chat[2].text.startswith(NOT_COVERED) for chat in half) / len(half)
        for half in (chats[:300], chats[300:])
    ]
    assert abs(shares[0] - shares[1]) < 0.15


def test_the_wording_of_a_question_does_not_reveal_whether_it_is_covered(pool: Pool) -> None:
    spoken = {what.rstrip(":.") for what in pool.spoken}
    covered = [
        not turn.text.startswith(NOT_COVERED)
        for chat in _draw(with_notes.one_page, pool, 600)
        for turn in chat
        if turn.role == "assistant" and any(f"`. {what}:" in turn.text for what in spoken)
    ]
    assert 0.3 < sum(covered) / len(covered) < 0.8


def test_a_drill_asks_for_several_tasks_of_its_page_and_each_once(pool: Pool) -> None:
    for chat in _draw(with_notes.drill, pool, 60):
        commands = [command_of(turn.text) for turn in chat if turn.role == "assistant"]
        assert all(f"`{command}`" in chat[0].text for command in commands)
        assert len(commands) >= 2


def test_all_refusals_begin_alike_and_no_command_begins_so(pool: Pool) -> None:
    refusals = {chat[-1].text.split()[0] for chat in _draw(from_memory.outside, pool)}
    assert len(refusals) == 1
    assert not any(
        chat[-1].text.startswith(tuple(refusals)) for chat in _draw(from_memory.recall, pool)
    )
    assert len({chat[-1].text for chat in _draw(from_memory.outside, pool)}) > 5


def test_a_chat_that_wanders_answers_each_question_as_if_it_came_first(pool: Pool) -> None:
    for chat in _draw(from_memory.wander, pool, 60):
        turns = [turn for turn in chat if turn.role != "system"]
        assert len(turns) in (4, 6, 8)
    named = [
        {name_of(turn.text) for turn in chat if turn.role == "assistant"}
        for chat in _draw(from_memory.wander, pool, 60)
    ]
    assert sum(len(names) > 1 for names in named) > 40


def test_a_disguised_page_agrees_with_its_markdown(pool: Pool) -> None:
    for seed in range(40):
        page = disguise(pool.known[seed % len(pool.known)], Random(seed))
        assert page.markdown.startswith(f"# {page.name}")
        assert all(f"`{each.command}`" in page.markdown for each in page.examples)


def test_an_invented_command_has_no_page(pool: Pool) -> None:
    names = {page.name for page in pool.note_pages}
    assert all(invent_page(pool.note_pages, Random(s)).name not in names for s in range(99))


def test_retrieved_notes_stand_before_the_question_and_hold_the_answer_or_not(pool: Pool) -> None:
    covered = 0
    for chat in _draw(with_notes.retrieved, pool, 120):
        notes, _, answer = chat[-3:]
        assert notes.role == "system"
        assert 1 <= notes.text.count("\n\n> ") <= 4
        if answer.text.startswith(NOT_COVERED):
            assert f"`{command_of(answer.text)}`" not in notes.text
        else:
            covered += 1
            assert f"`{command_of(answer.text)}`" in notes.text
    assert 30 < covered < 110


def test_the_mistakes_of_retrieval_are_rarer_than_they_are(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(with_notes, "FOUND_SHARE", 1.0)
    denied = {}
    for kept in (0.0, 1.0):
        monkeypatch.setattr(with_notes, "_MISTAKEN", kept)
        answers = [chat[-1].text for chat in _draw(with_notes.retrieved, pool, 120)]
        denied[kept] = sum(answer.startswith(NOT_COVERED) for answer in answers)
    assert denied[0.0] == 0 < denied[1.0]


def test_what_fits_too_little_is_shown_as_such_alone(pool: Pool) -> None:
    unfit = EXCERPTS_HEADER.format(fit=describe_fit(0.0))
    headers = [chat[-3].text.partition("\n")[0] for chat in _draw(with_notes.retrieved, pool, 120)]
    assert 0 < headers.count(unfit) < len(headers)


def test_a_follow_up_changes_narrows_or_explains_the_command_before(pool: Pool) -> None:
    explained = changed = 0
    for chat in _draw(follow_up, pool, 200):
        assert len(chat) in (4, 6)
        before, after = command_of(chat[1].text), command_of(chat[3].text)
        assert name_of(chat[1].text) == name_of(chat[3].text) or not after
        explained += not after and chat[3].text.startswith("It uses")
        changed += bool(after) and after != before
        assert "{{" not in before + after
    assert explained > 20
    assert changed > 60


_PLACES = ("my home directory", "this folder", "my home folder")


def test_a_value_is_named_in_words_of_its_placeholder(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {page.name for page in pool.core} | {task.name for task in pool.tasks}
    labels = ("file", "file...", "directory", "users", "archives", "images", "processes")
    said = ["unpack the one named {v}"]
    written = {(name, label): said for name in names - {"ls"} for label in labels}
    monkeypatch.setattr("assets.recipe.follow_ups.namings", lambda: written)
    named = 0
    for chat in _draw(follow_up, pool, 400):
        before = chat[1].text
        for question, answer in zip(chat[2::2], chat[3::2], strict=True):
            if question.text.startswith("unpack the one named "):
                value = question.text.removeprefix("unpack the one named ")
                assert name_of(before) != "ls"
                assert value in _PLACES or value in command_of(answer.text)
                named += 1
    assert named


def test_answers_from_memory_need_no_filling_in_of_options(pool: Pool) -> None:
    for chat in _draw(from_memory.recall, pool) + _draw(from_memory.everyday, pool):
        assert "{{" not in command_of(chat[-1].text)


def test_the_same_seed_makes_the_same_chats(pool: Pool) -> None:
    first, second = Random(8), Random(8)
    assert [make_chat(pool, first, Style()) for _ in range(50)] == [
        make_chat(pool, second, Style()) for _ in range(50)
    ]


def test_the_form_of_notes_is_the_documented_one() -> None:
    assert notes_message(["# a\n", "b"]) == f"{HEADER}\n\n# a\n\nb"
    card = Path(__file__).parents[2] / "assets" / "README.md"
    assert HEADER in card.read_text(encoding="utf-8")


def test_harmless_tasks_destroy_nothing(pool: Pool) -> None:
    assert len(pool.harmless) > 300
    assert [task for task in pool.harmless if warning(readable(task.answer.command))] == []


def test_everyday_lines_name_a_command_and_phrases(pool: Pool) -> None:
    assert len(pool.tasks) > 30
    for task in (*pool.tasks, *pool.harmless):
        assert task.phrases
        assert task.answer.command
        assert task.answer.what
