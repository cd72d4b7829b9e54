"""What the model of questions is trained on: entries of pages, and questions that they answer.

Each chat is an entry as retrieval reads it (`engines.retrieval.excerpts.entry_text`) and a
question. The loss of other tokens than the question's is next to nothing.
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
"""The share of questions about tasks of any page; the others are about everyday tasks."""


def ask_for_entry(pool: Pool, rng: Random, style: Style) -> Chat:
    """The entry of a task, and the task in a person's own words."""
    task, entry = _draw(pool, rng)
    question = rng.choice(task.phrases)
    asked = slip(question, rng) if rng.random() < style.slips else question
    return ChatTurn("system", entry), user(asked)


def _draw(pool: Pool, rng: Random) -> tuple[Task, str]:
    """A task that has an entry; in the page's words, where no hand-written one is found."""
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
