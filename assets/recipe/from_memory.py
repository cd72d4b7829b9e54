"""Chats without notes: what the model has to know, and what it has to admit not to know.

Each kind of chat is a pure function of pool, generator and style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from assets.recipe.material_files import Task
from assets.recipe.pages import Page, invent_name
from assets.recipe.turns import (
    Chat,
    ChatTurn,
    Pool,
    ask_examples,
    ask_explained,
    ask_how,
    ask_named,
    ask_next,
    ask_spoken,
    ask_task,
    ask_unknown,
    ask_what,
    reply,
    user,
)
from assets.recipe.wording import Style, slip

CORE_SHARE = 0.25
"""The share of questions about core pages, which the model has to know well."""

OUTSIDE_WEIGHT = 10.0
"""Weight of a refusal's first word, five times that of a command's: most doubtful questions are
outside the subject, and a wrong command does more harm than a refusal. Twenty times made follow-ups
worse and refusals hardly likelier; `calibration` makes them likelier."""

AFTER_SHARE = 0.3
"""The share of outside questions that follow an answer. A pair trained without such questions
refused .81 after an answer about `tail`, the next one .97."""

SYSTEM = (
    "You are a helpful assistant.",
    "You are specchat, a command-line helper.",
    "Answer briefly.",
    "You help people with the command line.",
)
"""System messages without notes; they do not change the answer."""


def preface(rng: Random) -> tuple[ChatTurn, ...]:
    """Occasionally, a system message that changes nothing."""
    return (ChatTurn("system", rng.choice(SYSTEM)),) if rng.random() < 0.08 else ()


def _known_page(pool: Pool, rng: Random) -> Page:
    return rng.choice(pool.core if rng.random() < CORE_SHARE else pool.known)


def recall(pool: Pool, rng: Random, style: Style) -> Chat:
    """A how-to question about a page that the model has to know."""
    page = _known_page(pool, rng)
    example = rng.choice(page.examples)
    task = pool.spoken.get(example.what)
    own = task if task and task.name == page.name and pool.remembers(task) else None
    return preface(rng) + ask_task(page, example, own, rng, style, noted=False)


def recall_more(pool: Pool, rng: Random, style: Style) -> Chat:
    """Two or three tasks of one known page in a row, sometimes after the command's definition."""
    page = _known_page(pool, rng)
    chat = ask_what(page, rng) if rng.random() < 0.3 else ()
    picks = rng.sample(page.examples, min(len(page.examples), rng.randint(2, 3)))
    for number, example in enumerate(picks):
        if number and rng.random() < 0.4:
            chat += ask_next(page, example, rng, style)
        else:
            chat += ask_how(page, example, rng, style, noted=False)
    return chat


def wander(pool: Pool, rng: Random, style: Style) -> Chat:
    """Unrelated questions in a row, each answered as if it were the first."""
    kinds = rng.choices(
        (recall, everyday, what_is, small_talk, outside), (10, 10, 2, 2, 2), k=rng.randint(2, 4)
    )
    exchanges = (kind(pool, rng, style)[-2:] for kind in kinds)
    return preface(rng) + tuple(turn for exchange in exchanges for turn in exchange)


def glance(pool: Pool, rng: Random, style: Style) -> Chat:
    """A task of any page seen in training, nearly always with the command's name."""
    page = rng.choice(pool.note_pages)
    return ask_named(page, rng.choice(page.examples), rng, style)


def everyday(pool: Pool, rng: Random, style: Style) -> Chat:
    """A hand-written question for an everyday task."""
    return _spoken(pool.tasks, pool, rng, style)


def harmless(pool: Pool, rng: Random, style: Style) -> Chat:
    """A hand-written question for a task that looks destructive and is not."""
    return _spoken(pool.harmless, pool, rng, style)


def _spoken(tasks: Sequence[Task], pool: Pool, rng: Random, style: Style) -> Chat:
    if not tasks:
        return recall(pool, rng, style)
    task = rng.choice(tasks)
    return preface(rng) + ask_spoken(task.name, task.answer, task.phrases, rng, style, noted=False)


def what_is(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question for the definition of a known page's command."""
    return preface(rng) + ask_what(_known_page(pool, rng), rng)


def explain(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question about what a command of a known page does."""
    page = rng.choice(pool.known)
    return ask_explained(page, rng.choice(page.examples), rng, noted=False)


def show_examples(pool: Pool, rng: Random, style: Style) -> Chat:
    """A request for examples of a known page."""
    return ask_examples(rng.choice(pool.known), rng, noted=False)


def small_talk(pool: Pool, rng: Random, style: Style) -> Chat:
    """Greetings, thanks, and questions about specchat."""
    remark = rng.choice(pool.remarks)
    prompt = rng.choice(remark.prompts)
    prompt = prompt[:1].upper() + prompt[1:] if rng.random() < 0.5 else prompt
    prompt = prompt.rstrip("?!") if rng.random() < 0.2 else prompt
    return (*preface(rng), user(prompt), reply(rng.choice(remark.replies)))


def outside(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question unrelated to the terminal, alone or after an answer with a command."""
    before = everyday(pool, rng, style)[-2:] if rng.random() < AFTER_SHARE else ()
    question = pool.outside.question(rng)
    question = slip(question, rng) if rng.random() < style.slips else question
    answer = replace(reply(pool.outside.answer(rng)), first=OUTSIDE_WEIGHT)
    return (*preface(rng), *before, user(question), answer)


def unknown_name(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question about a command that does not exist."""
    example = rng.choice(rng.choice(pool.known).examples)
    return ask_unknown(invent_name(rng), example, rng, style)
