"""Chats with notes: copy what fits, and leave what does not.

Each kind is a pure function of (pool, generator, style).
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from assets.recipe.invented import disguise, excerpt, invent_page
from assets.recipe.notes import HEADER, NOT_COVERED, notes_message
from assets.recipe.pages import Example, Page
from assets.recipe.recalled import SYSTEM, everyday, recall
from assets.recipe.replies import UNKNOWN
from assets.recipe.turns import (
    Chat,
    Pool,
    Turn,
    ask_examples,
    ask_explained,
    ask_how,
    ask_what,
    reply,
    user,
)
from assets.recipe.wording import Style

PAGE_WEIGHT = 0.3
"""Weight of the loss on a genuine page that stands in the notes; answers weigh 1."""

JUDGEMENT_WEIGHT = 12.0
"""Weight of an answer's first word where notes are given: it says whether they fit."""

_OTHER_HEADERS = ("Context:", "Documents:", "Use this documentation:", "Documentation:", "")


def _ask_page(page: Page, rng: Random, style: Style, example: Example | None = None) -> Chat:
    """One question that ``page``, standing in the notes, answers; about ``example`` mostly."""
    kind = rng.random()
    if kind < 0.08:
        return ask_what(page, rng)
    if kind < 0.11:
        return ask_examples(page, rng)
    example = example or rng.choice(page.examples)
    if kind < 0.16:
        return ask_explained(page, example, rng)
    return ask_how(page, example, rng, style, plain=False)


def _notes(documents: Sequence[Page], rng: Random, weight: float) -> Turn:
    """The notes as a system message; now and then in another frame, so that none is needed."""
    text = notes_message([page.markdown for page in documents])
    if rng.random() < 0.12:
        text = f"{rng.choice(SYSTEM)}\n\n{text}"
    elif rng.random() < 0.1:
        text = rng.choice(_OTHER_HEADERS) + text.removeprefix(HEADER)
    return Turn("system", text.strip(), weight)


def _with_notes(
    documents: Sequence[Page], asked: Page, rng: Random, style: Style, *, weight: float
) -> Chat:
    chat: Chat = (_notes(documents, rng, weight),)
    count = min(len(asked.examples), rng.choice((2, 3, 3, 4)))
    for example in rng.sample(asked.examples, count):
        chat += _ask_page(asked, rng, style, example)
    return _judged(chat)


def _judged(chat: Chat) -> Chat:
    """``chat`` with the weight of judgement on the first word of its answers."""
    return tuple(
        replace(turn, first=JUDGEMENT_WEIGHT) if turn.role == "assistant" else turn for turn in chat
    )


def noted(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions with the right page in the notes, whole or in part."""
    page = rng.choice(pool.noted if rng.random() < 0.7 else pool.known)
    if rng.random() < 0.6:
        page = excerpt(page, rng, 5)
    return _with_notes([page], page, rng, style, weight=PAGE_WEIGHT)


def disguised(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions about a page whose name, flags or commands were changed."""
    page = disguise(excerpt(rng.choice(pool.noted), rng, 5), rng)
    return _with_notes([page], page, rng, style, weight=0.0)


def invented(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions about a command that does not exist, with its page in the notes."""
    page = invent_page(pool.noted, rng)
    return _with_notes([page], page, rng, style, weight=0.0)


def several(pool: Pool, rng: Random, style: Style) -> Chat:
    """The right page among others."""
    pages = [excerpt(rng.choice(pool.noted), rng, 3) for _ in range(rng.randint(2, 3))]
    if rng.random() < 0.5:
        pages = [disguise(page, rng) for page in pages]
    return _with_notes(pages, rng.choice(pages), rng, style, weight=0.0)


def misled(pool: Pool, rng: Random, style: Style) -> Chat:
    """A task, known or not, with pages in the notes that do not cover it."""
    wrong = [excerpt(rng.choice(pool.noted), rng, 3) for _ in range(rng.choice((1, 1, 1, 2)))]
    question, answer = _uncovered(pool, rng, style)
    if any(f"`{page.name}`" in answer.text for page in wrong):
        return _with_notes(wrong, wrong[0], rng, style, weight=0.0)
    chat = (_notes(wrong, rng, 0.0), question, answer)
    return _judged(chat + _ask_page(wrong[0], rng, style) if rng.random() < 0.4 else chat)


def _uncovered(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question the notes do not answer: from memory if the page is known, else not at all."""
    kind = rng.random()
    if kind < 0.35:
        page = rng.choice(pool.noted)
        question, _ = ask_how(page, rng.choice(page.examples), rng, style, plain=True)
        known = any(page is each for each in pool.known)
        if not known:
            return question, reply(f"{NOT_COVERED} {UNKNOWN}")
    asked = everyday if kind > 0.75 else recall
    question, answer = asked(pool, rng, style)[-2:]
    return question, reply(f"{NOT_COVERED} {answer.text}")


def pasted(pool: Pool, rng: Random, style: Style) -> Chat:
    """The right page in the user's own message."""
    page = disguise(excerpt(rng.choice(pool.noted), rng, 4), rng)
    question, answer = _ask_page(page, rng, style)
    parts = [page.markdown, question.text]
    if rng.random() < 0.3:
        parts.reverse()
    return user("\n\n".join(parts)), answer
