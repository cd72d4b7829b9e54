"""Chats with notes: copy what fits, and leave what does not.

Owns what stands in the notes and which of the questions they cover. Covered and uncovered
questions follow the same notes, come from the same sources and stand in any order, so that nothing
but the question itself tells whether the notes answer it: no length, no place, no kind of page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from assets.recipe.invented import disguise, excerpt, invent_list, invent_of, invent_page
from assets.recipe.notes import HEADER, NOT_COVERED, notes_message
from assets.recipe.pages import Page
from assets.recipe.recalled import SYSTEM, everyday
from assets.recipe.replies import UNKNOWN
from assets.recipe.turns import (
    Chat,
    Pool,
    Turn,
    ask_examples,
    ask_explained,
    ask_how,
    ask_spoken,
    ask_what,
    reply,
    user,
)
from assets.recipe.wording import Style

JUDGEMENT_WEIGHT = 4.0
"""Weight of an answer's first word where notes are given: it says whether they fit."""

COMMAND_WEIGHT = 3.0
"""Weight of a command where notes are given: among many that begin alike, one is asked for."""

ANSWER_WEIGHT = 2.25
"""Weight of the rest of such an answer: it takes the asked task from among the page's others."""

COVERED = 0.64
"""How often a question is about the notes."""

SPOKEN = 0.6
"""How often such a question is put as people do, where it can be.

Questions the notes do not cover are, now and then: were these never, how a question is put would
tell whether they do.
"""

_OTHER_HEADERS = ("Context:", "Documents:", "Use this documentation:", "Documentation:", "")


@dataclass(frozen=True)
class Source:
    """A page as it may stand in the notes, and whether memory knows it in this very form."""

    page: Page
    known: bool = False


def draw_source(pool: Pool, rng: Random) -> Source:
    """A page to put into notes or to ask about: genuine, disguised or made up; whole or in part."""
    kind = rng.random()
    if kind < 0.12:
        return Source(invent_page(pool.noted, rng))
    if kind < 0.27 and pool.tasks:
        return Source(invent_of([task.answer for task in pool.tasks], pool.noted, rng))
    page = rng.choice(rng.choices((pool.core, pool.known, pool.noted), (0.25, 0.2, 0.55))[0])
    part = excerpt(page, rng, 5) if rng.random() < 0.45 else page
    if kind < 0.55:
        return Source(disguise(part, rng))
    return Source(part, any(page is each for each in pool.known))


def _ask_source(source: Source, pool: Pool, rng: Random, style: Style) -> Chat:
    """One question that ``source``, standing in the notes, answers."""
    page, kind = source.page, rng.random()
    if kind < 0.06:
        return ask_what(page, rng)
    if kind < 0.08:
        return ask_examples(page, rng)
    example = rng.choice(page.examples)
    if kind < 0.12:
        return ask_explained(page, example, rng)
    spoken = [each for each in page.examples if each.what in pool.phrases]
    if spoken and rng.random() < SPOKEN:
        example = rng.choice(spoken)
        phrases = pool.phrases[example.what]
        return ask_spoken(page.name, example, phrases, rng, style, plain=False)
    return ask_how(page, example, rng, style, plain=False)


def _ask_elsewhere(notes: Sequence[Source], pool: Pool, rng: Random, style: Style) -> Chat:
    """A question the notes do not answer: from memory if its page is known, else not at all."""
    if rng.random() < 0.2:
        question, answer = everyday(pool, rng, style)[-2:]
        known = True
    else:
        source = draw_source(pool, rng)
        example = rng.choice(source.page.examples)
        question, answer = ask_how(source.page, example, rng, style, plain=True)
        known = source.known
    if any(f"`{each.page.name}`" in answer.text for each in notes):
        return _ask_source(rng.choice(notes), pool, rng, style)
    return question, reply(f"{NOT_COVERED} {answer.text if known else UNKNOWN}")


def _notes(sources: Sequence[Source], rng: Random) -> Turn:
    """The notes as a system message; now and then in another frame, so that none is needed."""
    text = notes_message([source.page.markdown for source in sources])
    if rng.random() < 0.12:
        text = f"{rng.choice(SYSTEM)}\n\n{text}"
    elif rng.random() < 0.1:
        text = rng.choice(_OTHER_HEADERS) + text.removeprefix(HEADER)
    return Turn("system", text.strip())


def _judged(sources: Sequence[Source], pool: Pool, rng: Random, style: Style) -> Chat:
    """One question, answered by ``sources`` or not."""
    if rng.random() < COVERED:
        question, answer = _ask_source(rng.choice(sources), pool, rng, style)
    else:
        question, answer = _ask_elsewhere(sources, pool, rng, style)
    return question, replace(_weighed(answer), first=JUDGEMENT_WEIGHT)


def _weighed(turn: Turn) -> Turn:
    """An answer from notes, or a question as it is."""
    if not turn.weight:
        return turn
    return replace(turn, weight=ANSWER_WEIGHT, command=COMMAND_WEIGHT)


def _questions(sources: Sequence[Source], pool: Pool, rng: Random, style: Style) -> Chat:
    exchanges = (_judged(sources, pool, rng, style) for _ in range(rng.randint(1, 6)))
    return tuple(turn for exchange in exchanges for turn in exchange)


def noted(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions with one page in the notes, which answers some of them."""
    source = draw_source(pool, rng)
    return (_notes([source], rng), *_questions([source], pool, rng, style))


def several(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions with two or three shortened pages in the notes."""
    drawn = [draw_source(pool, rng) for _ in range(rng.randint(2, 3))]
    sources = [replace(each, page=excerpt(each.page, rng, 3)) for each in drawn]
    return (_notes(sources, rng), *_questions(sources, pool, rng, style))


def pasted(pool: Pool, rng: Random, style: Style) -> Chat:
    """A page in the user's own message, before or after the question, which it answers or not."""
    source = draw_source(pool, rng)
    question, answer = _judged([source], pool, rng, style)
    parts = [source.page.markdown, question.text]
    if rng.random() < 0.3:
        parts.reverse()
    return user("\n\n".join(parts)), answer


def drill(pool: Pool, rng: Random, style: Style) -> Chat:
    """Several tasks of one page, one after another, all of them in the notes.

    A page's commands mostly begin alike, so each must be found by the task before it. Half of the
    pages are lists of short ones, and half of the questions nearly the page's words: many
    decisions among few tokens.
    """
    page = invent_list(pool.noted, rng) if rng.random() < 0.5 else draw_source(pool, rng).page
    style = style if rng.random() < 0.5 else replace(style, change=0.1, concrete=0.0)
    picks = rng.sample(page.examples, min(len(page.examples), rng.randint(3, 8)))
    exchanges = (ask_how(page, each, rng, style, plain=False) for each in picks)
    turns = (_weighed(turn) for pair in exchanges for turn in pair)
    return (_notes([Source(page)], rng), *turns)
