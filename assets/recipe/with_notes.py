"""Chats with notes: the answer comes from the notes if they cover the question, else it says so.

Covered and uncovered questions follow the same notes, come from the same sources and are in random
order, so that only the question itself reveals whether the notes answer it, not length, position or
kind of page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from assets.recipe.from_memory import SYSTEM, everyday
from assets.recipe.material_files import Task
from assets.recipe.pages import (
    Example,
    Page,
    disguise,
    excerpt,
    invent_list,
    invent_of,
    invent_page,
    render,
)
from assets.recipe.turns import (
    ANSWER_NO_COMMAND,
    HEADER,
    NOT_COVERED,
    SPOKEN_SHARE,
    Chat,
    ChatTurn,
    Pool,
    answer_how,
    ask_examples,
    ask_explained,
    ask_how,
    ask_spoken,
    ask_task,
    ask_what,
    excerpts_message,
    notes_message,
    reply,
    user,
)
from assets.recipe.values import carry
from assets.recipe.wording import Style, reword
from datastores.passages.chunks import Chunk, split
from engines.retrieval.excerpts import HARDLY_FIT, PassageExcerpt

JUDGEMENT_WEIGHT = 4.0
"""Weight of an answer's first word if notes are given: it decides whether they apply."""

COMMAND_WEIGHT = 3.0
"""Weight of a command if notes are given: it is one of many that begin alike."""

ANSWER_WEIGHT = 2.25
"""Weight of the rest of such an answer: it selects the requested task among the page's tasks."""

COVERED_SHARE = 0.64
"""The share of questions that the notes cover."""

FOUND_SHARE = 0.83
"""The share of questions for which retrieval finds the right chunk, if not always the right entry.
Of chunks that fit well enough, five in six answer the question."""

_MISTAKEN = 0.33
"""The share of chats to keep in which the chunk was found but another of its entries is shown. The
fit predicts better than the target whether an entry answers (README.md), and a target that saw all
of these mistakes denied a quarter of the right entries."""

_SAME_PAGE = 0.25
"""Of the questions whose chunk is not found, the share that gets the page's other tasks."""

_SHOWN = (1, 1, 1, 1, 2, 4)
"""Numbers of entries to show before a question: mostly one, as in the program."""

_CANDIDATES = 8
"""Pages drawn for each distractor; the chunks that share most words are chosen."""

_MOST_IN_OWN_WORDS = 7
"""Maximum number of questions of a drill in own words."""

_LISTED = 8
"""Maximum number of tasks of an invented list that is drilled in own words."""

_OTHER_HEADERS = ("Context:", "Documents:", "Use this documentation:", "Documentation:", "")


@dataclass(frozen=True)
class NotedPage:
    """A page for the notes, and whether the model has to know it in this form from memory."""

    page: Page
    known: bool = False


def draw_source(pool: Pool, rng: Random) -> NotedPage:
    """A page for the notes or to ask about: genuine, disguised or invented; whole or in part."""
    kind = rng.random()
    if kind < 0.12:
        return NotedPage(invent_page(pool.note_pages, rng))
    if kind < 0.27 and pool.tasks:
        return NotedPage(invent_of([task.answer for task in pool.tasks], pool.note_pages, rng))
    page = rng.choice(rng.choices((pool.core, pool.known, pool.note_pages), (0.25, 0.2, 0.55))[0])
    part = excerpt(page, rng, 5) if rng.random() < 0.45 else page
    if kind < 0.55:
        return NotedPage(disguise(part, rng))
    return NotedPage(part, any(page is each for each in pool.known))


def _ask_source(source: NotedPage, pool: Pool, rng: Random, style: Style) -> Chat:
    """A question that ``source``, in the notes, answers."""
    page, kind = source.page, rng.random()
    if kind < 0.06:
        return ask_what(page, rng)
    if kind < 0.08:
        return ask_examples(page, rng, noted=True)
    example = rng.choice(page.examples)
    if kind < 0.12:
        return ask_explained(page, example, rng, noted=True)
    spoken = [each for each in page.examples if each.what in pool.spoken]
    if spoken and rng.random() < SPOKEN_SHARE:
        example = rng.choice(spoken)
        phrases = pool.spoken[example.what].phrases_for(page.name)
        return ask_spoken(page.name, example, phrases, rng, style, noted=True)
    return ask_how(page, example, rng, style, noted=True)


def _ask_elsewhere(notes: Sequence[NotedPage], pool: Pool, rng: Random, style: Style) -> Chat:
    """A question that the notes do not answer; the model answers if its page is known."""
    if rng.random() < 0.2:
        question, answer = everyday(pool, rng, style)[-2:]
        known = True
    else:
        source = draw_source(pool, rng)
        example = rng.choice(source.page.examples)
        task, known = pool.spoken.get(example.what), source.known
        known = known and (task is None or pool.remembers(task))
        question, answer = ask_task(source.page, example, task, rng, style, noted=False)
    if any(f"`{each.page.name}`" in answer.text for each in notes):
        return _ask_source(rng.choice(notes), pool, rng, style)
    return question, reply(f"{NOT_COVERED} {answer.text if known else ANSWER_NO_COMMAND}")


def _notes(sources: Sequence[NotedPage], rng: Random) -> ChatTurn:
    """The notes as a system message, sometimes in another frame, so that none is required."""
    text = notes_message([source.page.markdown for source in sources])
    if rng.random() < 0.12:
        text = f"{rng.choice(SYSTEM)}\n\n{text}"
    elif rng.random() < 0.1:
        text = rng.choice(_OTHER_HEADERS) + text.removeprefix(HEADER)
    return ChatTurn("system", text.strip())


def _covered_or_not(sources: Sequence[NotedPage], pool: Pool, rng: Random, style: Style) -> Chat:
    """A question that ``sources`` answer or not."""
    if rng.random() < COVERED_SHARE:
        question, answer = _ask_source(rng.choice(sources), pool, rng, style)
    else:
        question, answer = _ask_elsewhere(sources, pool, rng, style)
    return question, _judged(answer)


def _weighted(turn: ChatTurn) -> ChatTurn:
    """An answer with the weights for notes; a question unchanged."""
    if not turn.weight:
        return turn
    return replace(turn, weight=ANSWER_WEIGHT, command=COMMAND_WEIGHT)


def _judged(answer: ChatTurn) -> ChatTurn:
    """Like `_weighted`, for an answer whose first word says whether the notes apply."""
    return replace(_weighted(answer), first=JUDGEMENT_WEIGHT)


def _questions(sources: Sequence[NotedPage], pool: Pool, rng: Random, style: Style) -> Chat:
    exchanges = (_covered_or_not(sources, pool, rng, style) for _ in range(rng.randint(1, 6)))
    return tuple(turn for exchange in exchanges for turn in exchange)


def one_page(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions with one page in the notes, which covers some of them."""
    source = draw_source(pool, rng)
    return (_notes([source], rng), *_questions([source], pool, rng, style))


def several_pages(pool: Pool, rng: Random, style: Style) -> Chat:
    """Questions with two or three shortened pages in the notes."""
    drawn = [draw_source(pool, rng) for _ in range(rng.randint(2, 3))]
    sources = [replace(each, page=excerpt(each.page, rng, 3)) for each in drawn]
    return (_notes(sources, rng), *_questions(sources, pool, rng, style))


def pasted(pool: Pool, rng: Random, style: Style) -> Chat:
    """A page in the user's message, before or after a question that it answers or not."""
    source = draw_source(pool, rng)
    question, answer = _covered_or_not([source], pool, rng, style)
    parts = [source.page.markdown, question.text]
    if rng.random() < 0.3:
        parts.reverse()
    return user("\n\n".join(parts)), answer


def retrieved(pool: Pool, rng: Random, style: Style) -> Chat:
    """A question in a person's own words, after the notes that retrieval shows for it.

    The notes are the best-fitting items of one to four chunks that share words with the question.
    The right item is mostly the first, or is missing, alone or with its whole chunk. If nothing
    fits well, the best items are shown as notes that do not seem to fit. As in
    `app.conversation.imported_texts`, earlier turns precede the notes.
    """
    found, mistaken = rng.random() < FOUND_SHARE, rng.random() < _MISTAKEN
    while True:
        asked, question, notes = _search(pool, rng, style, found=found)
        covered = found and any(asked.is_in(each.text) for each in notes)
        if covered == found or mistaken:
            break
    before = everyday(pool, rng, style)[-2:] if rng.random() < 0.2 else ()
    system = ChatTurn("system", excerpts_message(notes))
    return (*before, system, question, asked.answer(question, covered=covered))


def _search(
    pool: Pool, rng: Random, style: Style, *, found: bool
) -> tuple[_Asked, ChatTurn, list[PassageExcerpt]]:
    """A task, a question for it, and what retrieval shows; if `found`, its chunk takes part."""
    asked = _in_own_words(pool, rng, covered=found)
    question = asked.question(rng, style)
    chunks = _distractors(asked, question.text, pool, rng, rng.randint(not found, 3))
    if found:
        chunks.insert(rng.randint(0, len(chunks)), asked.chunk())
    elif rng.random() < _SAME_PAGE:
        chunks += asked.other_chunks()
    # Translations learned from this page would fit its questions better than a real person's.
    known = pool.translations(asked.source)
    items = rng.choice(_SHOWN)
    shown = partial(pool.statistics.excerpts, chunks, question.text, known, items)
    # A lower threshold than the program's, so that the target learns what the words for fit mean.
    return asked, question, shown(HARDLY_FIT) or shown(0.0)


def drill_own_words(pool: Pool, rng: Random, style: Style) -> Chat:
    """Several questions in a person's own words about one list of tasks, which covers some of them.

    The list is a page with phrases for at least three tasks, or invented from such tasks of many
    pages. As in `drill`, this trains many decisions with few tokens.
    """
    page, asked_for = _spoken_list(pool, rng)
    chat: Chat = (_notes([NotedPage(page)], rng),)
    for number, task in rng.sample(asked_for, min(len(asked_for), _MOST_IN_OWN_WORDS)):
        other = _in_own_words(pool, rng, covered=False)
        listed = any(each.what == other.example.what for each in page.examples)
        same = listed or other.page.name == page.name
        covered = same or rng.random() < COVERED_SHARE
        own = _Asked(page, page.examples[number], task.phrases_for(page.name), known=False)
        chat += (own if covered else other).exchange(rng, style, covered=covered)
    return chat


def _spoken_list(pool: Pool, rng: Random) -> tuple[Page, list[tuple[int, Task]]]:
    """A page for the notes, and its tasks that have phrases, with their indices."""
    if pool.spoken_pages and rng.random() < 0.5:
        page = rng.choice(pool.spoken_pages)
    else:
        tasks = pool.own_words or pool.tasks
        examples = [task.answer for task in rng.sample(tasks, min(len(tasks), _LISTED))]
        page = invent_of(examples, pool.note_pages, rng)
    spoken = [
        (number, pool.spoken[example.what])
        for number, example in enumerate(page.examples)
        if example.what in pool.spoken
    ]
    return disguise(page, rng) if rng.random() < 0.5 else page, spoken


@dataclass(frozen=True)
class _Asked:
    """A task, its page as the notes have it, and phrases that ask for the task."""

    page: Page
    example: Example
    phrases: Sequence[str]
    known: bool
    source: str = ""
    """The page's own name."""

    def chunk(self) -> Chunk:
        """The chunk of the page that holds the task."""
        found = [each for each in split(self.page.markdown) if self.is_in(each.content)]
        alone = render(replace(self.page, examples=(self.example,)))
        return found[0] if found else next(split(alone.markdown))

    def other_chunks(self) -> list[Chunk]:
        """A chunk of the page without the task, if the page has other tasks."""
        others = tuple(each for each in self.page.examples if each.what != self.example.what)
        if not others:
            return []
        return [next(split(render(replace(self.page, examples=others)).markdown))]

    def is_in(self, text: str) -> bool:
        """Whether ``text`` holds the task."""
        return f"- {self.example.what}:\n\n`{self.example.command}`" in text

    def question(self, rng: Random, style: Style) -> ChatTurn:
        """A question for the task."""
        return ask_spoken(self.page.name, self.example, self.phrases, rng, style, noted=True)[0]

    def exchange(self, rng: Random, style: Style, *, covered: bool) -> Chat:
        """A question for the task, and its answer."""
        question = self.question(rng, style)
        return question, self.answer(question, covered=covered)

    def answer(self, question: ChatTurn, *, covered: bool) -> ChatTurn:
        """The answer to ``question``; ``covered`` tells whether the notes hold the task."""
        name, example = self.page.name, self.example
        if covered:
            answer = answer_how(name, example.what, example.command)
        elif self.known:
            memory = carry(question.text, example.command)
            answer = f"{NOT_COVERED} {answer_how(name, example.plain, memory)}"
        else:
            answer = f"{NOT_COVERED} {ANSWER_NO_COMMAND}"
        return _judged(reply(answer))


def _in_own_words(pool: Pool, rng: Random, *, covered: bool) -> _Asked:
    """A task with its hand-written phrases, or one of any page, reworded each time.

    If covered by the notes, it is disguised about half of the time, so that the notes are right and
    memory is wrong.
    """
    disguised, kind = covered and rng.random() < 0.55, rng.random()
    if pool.own_words and kind < 0.5:
        task = rng.choice(pool.own_words)
        page = pool.pages[task.name]
        number, phrases = page.examples.index(task.answer), task.phrases
        known = pool.remembers(task) and any(page is each for each in pool.known)
    elif pool.tasks and kind < 0.85:
        task = rng.choice(pool.tasks)
        found = pool.core_pages.get(task.name)
        if found is not None and task.answer in found.examples:
            page = found
        else:
            others = rng.sample(rng.choice(pool.known).examples, 1)
            summary = found.summary if found else rng.choice(pool.known).summary
            examples = (task.answer, *others) if rng.random() < 0.5 else (*others, task.answer)
            page = render(Page(task.name, "common", summary, examples, ""))
        number, phrases, known = page.examples.index(task.answer), task.phrases, True
    else:
        page = rng.choice(pool.note_pages)
        number, known = rng.randrange(len(page.examples)), False
        loose = Style(change=0.7)
        phrases = tuple(reword(page.examples[number].plain, rng, loose) for _ in range(3))
    named = page.name
    page = disguise(page, rng) if disguised else page
    fitting = Task(named, page.examples[number], tuple(phrases)).phrases_for(page.name)
    return _Asked(page, page.examples[number], fitting, known and not disguised, named)


def _distractors(asked: _Asked, question: str, pool: Pool, rng: Random, count: int) -> list[Chunk]:
    """``count`` chunks that share words with ``question`` and do not answer it."""
    wanted = set(question.lower().split()) | set(asked.example.plain.lower().split())
    others = [draw_source(pool, rng).page for _ in range(_CANDIDATES * count)]
    other = [page for page in others if page.name != asked.page.name]
    chunks = [
        rng.choice(list(split(page.markdown)))
        for page in other
        if all(each.what != asked.example.what for each in page.examples)
    ]
    chunks.sort(key=lambda chunk: -len(wanted & set(chunk.content.lower().split())))
    return chunks[:count]


def drill(pool: Pool, rng: Random, style: Style) -> Chat:
    """Several tasks of one page in a row, all of them in the notes.

    Most commands of a page begin alike, so each must be found by its task. Half of the pages are
    lists of short tasks, and half of the chats use nearly the page's words, which trains many
    decisions with few tokens.
    """
    page = invent_list(pool.note_pages, rng) if rng.random() < 0.5 else draw_source(pool, rng).page
    style = style if rng.random() < 0.5 else replace(style, change=0.1, concrete=0.0)
    picks = rng.sample(page.examples, min(len(page.examples), rng.randint(3, 8)))
    exchanges = (ask_how(page, each, rng, style, noted=True) for each in picks)
    turns = (_weighted(turn) for pair in exchanges for turn in pair)
    return (_notes([NotedPage(page)], rng), *turns)
