"""Draws the training data of the model of questions: entries, and questions that they answer.

Each chat is an entry as retrieval reads it (`engines.retrieval.excerpts.entry_text`) and a
question. Tokens outside the question hardly count in the loss.
"""

from __future__ import annotations

from functools import cache
from random import Random

from assets.recipe.material_files import Task
from assets.recipe.turns import Chat, ChatTurn, Pool, user
from assets.recipe.wording import Style, slip
from datastores.passages.chunks import split
from engines.retrieval.excerpts import entry_text, split_lists

_TRIES = 20
_OWN_WORDS = 0.8
"""The share of questions about tasks of any page; the others ask for everyday tasks."""


def ask_for_entry(pool: Pool, rng: Random, style: Style) -> Chat:
    """A chat of a task's entry and a question for it in a person's own words."""
    task, entry = _draw(pool, rng)
    question = rng.choice(task.phrases)
    asked = slip(question, rng) if rng.random() < style.slips else question
    return ChatTurn("system", entry), user(asked)


def _draw(pool: Pool, rng: Random) -> tuple[Task, str]:
    """A task and its entry; in the page's words if no hand-written task is found."""
    tasks = pool.own_words if pool.own_words and rng.random() < _OWN_WORDS else pool.tasks
    for _ in range(_TRIES if tasks else 0):
        task = rng.choice(tasks)
        page = pool.pages.get(task.name)
        entry = _entry(page.markdown, task.answer.command) if page else ""
        if entry:
            return task, entry
    page = rng.choice(pool.note_pages)
    example = rng.choice(page.examples)
    return Task(page.name, example, (example.plain,)), _entry(page.markdown, example.command)


@cache
def _entry(page: str, command: str) -> str:
    """The entry with ``command``; empty if the page has none."""
    mark = f"`{command}`"
    return next(
        (
            entry_text(each.introduction, item)
            for chunk in split(page)
            for each in split_lists(chunk)
            for item in each.items
            if mark in item
        ),
        "",
    )
