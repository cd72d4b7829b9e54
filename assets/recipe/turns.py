"""The parts of chats: turns, the form of notes and answers, and single exchanges.

A program that gives the model documents uses the same form of notes (see the model card): a system
message of ``HEADER`` and the documents' own text, separated by blank lines.

An answer names the command first, then the task in the page's words, then the command in a fence.
Each part narrows down the next, and with the page in the notes the last two are one stretch of
copying. A warning follows a destructive command. From notes, commands are copied literally; from
memory, placeholders read ``<file>`` and are filled with the values that the question names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from zlib import crc32

from assets.recipe.destructive import warning
from assets.recipe.drawn_values import name_values, redraw_values
from assets.recipe.material_files import Remark, Task
from assets.recipe.outside import Outside
from assets.recipe.pages import Example, Page
from assets.recipe.placeholders import readable
from assets.recipe.retrieval import PageStatistics
from assets.recipe.translations import translate
from assets.recipe.values import carry
from assets.recipe.wording import Style, ask, reword
from engines.retrieval.excerpts import PassageExcerpt, describe_fit
from engines.retrieval.translations import Translations, to_lines

ANSWER_NO_COMMAND = "I do not know a command for it."
"""The answer if neither notes nor memory have one."""

HEADER, EXCERPTS_HEADER = "Notes:", "Notes that {fit}:"

NOT_COVERED = "The notes do not cover this."
"""The beginning of an answer if the notes do not apply."""

FIRST_WEIGHT = 2.0
"""Weight of an answer's first word, which decides whether a command follows."""

DESTRUCTIVE_WEIGHT = 0.25
"""Weight of an answer from memory with a destructive command. It is low so that ambiguous questions
get another answer, since a wrong command does more harm if it destroys something. With this and
more harmless tasks, 29 of 1,066 questions got a destructive command unasked, 55 before."""

_TERSE_WORDS = 6
_SPOKEN_TASKS = 3

SPOKEN_SHARE = 0.6
"""The share of questions in colloquial wording, for tasks that have one.

It is the same whether notes cover the question, do not, or are missing; otherwise the wording
would reveal which.
"""


@dataclass(frozen=True)
class ChatTurn:
    """One message with the loss weight of its tokens.

    ``first`` is the weight of the first word, which decides whether the notes apply and is one
    token in fifty; ``command`` is that of fenced commands. Zero stands for ``weight``.
    """

    role: str
    text: str
    weight: float = 0.0
    first: float = 0.0
    command: float = 0.0


Chat = tuple[ChatTurn, ...]


@dataclass(frozen=True)
class Pool:
    """The material that chats are made from.

    ``core`` holds the known pages of everyday tasks, ``note_pages`` all pages that may be in notes.
    ``tasks`` are everyday ones, ``own_words`` those of any page in people's own words, ``harmless``
    those that look destructive and are not.
    """

    core: Sequence[Page]
    known: Sequence[Page]
    note_pages: Sequence[Page]
    tasks: Sequence[Task]
    remarks: Sequence[Remark]
    outside: Outside
    own_words: Sequence[Task] = ()
    harmless: Sequence[Task] = ()

    @cached_property
    def pages(self) -> Mapping[str, Page]:
        """The pages that may be in notes, by name."""
        return {page.name: page for page in self.note_pages}

    @cached_property
    def core_pages(self) -> Mapping[str, Page]:
        """The core pages by name."""
        return {page.name: page for page in self.core}

    @cached_property
    def all_tasks(self) -> Sequence[Task]:
        """All tasks that have phrases, everyday ones last."""
        return (*self.own_words, *self.harmless, *self.tasks)

    @cached_property
    def spoken(self) -> Mapping[str, Task]:
        """The tasks that have phrases, by the description on their page."""
        return {task.answer.what: task for task in self.all_tasks}

    def remembers(self, task: Task) -> bool:
        """Whether ``task`` may be answered from memory if the question does not name its command.

        Of destructive tasks, only everyday ones may: a model also gives answers that it has
        memorised to questions that only sound similar.
        """
        asked_for = (task.name, task.answer.command)
        everyday = ((each.name, each.answer.command) for each in self.tasks)
        return not destroys(task.answer) or asked_for in everyday

    @cached_property
    def statistics(self) -> PageStatistics:
        """How common words are on the pages that may be in notes."""
        return PageStatistics(page.markdown for page in self.note_pages)

    def translations(self, name: str) -> Translations:
        """Word translations that were not learned from the page `name`.

        Those learned from it would fit its questions better than they fit a real person's.
        """
        return self._halves[1 - _half_of(name)]

    @cached_property
    def _halves(self) -> Sequence[Translations]:
        """The translations learned from each half of the pages, indexed by `_half_of`."""
        halves: tuple[list[Task], list[Task]] = [], []
        for task in self.all_tasks:
            halves[_half_of(task.name)].append(task)
        outside = self.outside.sentences
        return [Translations(to_lines(translate(half, self.pages, outside))) for half in halves]

    @cached_property
    def spoken_pages(self) -> Sequence[Page]:
        """The pages with phrases for at least three tasks."""
        tasks = Counter(task.name for task in self.own_words)
        return [page for page in self.note_pages if tasks[page.name] >= _SPOKEN_TASKS]


def _half_of(name: str) -> int:
    return crc32(name.encode()) % 2


Kind = Callable[[Pool, Random, Style], Chat]


def destroys(example: Example) -> bool:
    """Whether the command destroys something."""
    return bool(warning(readable(example.command)))


_GENERIC = ("display help", "display version", "show help", "display the help", "view document")
_WHAT = (
    "what is {}?",
    "what is {}",
    "what does {} do?",
    "what's {}?",
    "tell me about {}",
    "what is {} for?",
    "describe {}",
    "what is the {} command?",
    "explain {}",
    "{}?",
    "What does the {} command do?",
    "what do I use {} for?",
    "define {}",
)
_EXAMPLES = (
    "show me examples of {}",
    "examples of {}",
    "how do I use {}?",
    "give me examples of {}.",
    "{} examples",
    "how is {} used?",
    "how to use {}",
    "{} usage",
    "{} cheat sheet",
    "show me how {} is used",
)
_REDRAWN = 0.8
_NEXT = ("and ", "and how do I ", "now ", "ok, and ", "next: ", "then ", "also ")
_EXPLAIN = (
    "what does `{}` do?",
    "explain `{}`",
    "what does {} do?",
    "explain this command: {}",
    "what is this: `{}`",
    "what happens when I run `{}`?",
    "what would `{}` do?",
)


def user(text: str) -> ChatTurn:
    """A message of the user."""
    return ChatTurn("user", text)


def reply(text: str) -> ChatTurn:
    """A message of the model, on which the loss is taken."""
    return ChatTurn("assistant", text, 1.0, first=FIRST_WEIGHT)


def _question(
    example: Example, name: str, rng: Random, style: Style, named: float, *, noted: bool
) -> str:
    """A question in the page's words, which names the command with probability ``named``.

    If it is to be answered from memory by a destructive command, it always does.
    """
    phrase = reword(example.plain, rng, style)
    named = named if noted or not destroys(example) else 1.0
    if not noted and rng.random() < style.values:
        phrase = name_values(phrase, example.command, rng)
    bare = phrase.lower().startswith(_GENERIC) or len(phrase.split()) < 3
    return ask(phrase, rng, style, name if bare or rng.random() < named else None)


def ask_next(page: Page, example: Example, rng: Random, style: Style) -> Chat:
    """A task of the known ``page``, worded as a continuation of an earlier question.

    A destructive one is asked for as if it came first, by its command's name.
    """
    if destroys(example):
        return ask_how(page, example, rng, style, noted=False)
    phrase = reword(example.plain, rng, style)
    if rng.random() < style.values:
        phrase = name_values(phrase, example.command, rng)
    question = rng.choice(_NEXT) + phrase
    return user(question), _reply_how(question, page.name, example, noted=False)


def ask_how(page: Page, example: Example, rng: Random, style: Style, *, noted: bool) -> Chat:
    """A task of ``page``, answered from the notes if ``noted``, else from memory."""
    question = _question(example, page.name, rng, style, 0.45, noted=noted)
    return user(question), _reply_how(question, page.name, example, noted=noted)


def ask_spoken(
    name: str, example: Example, phrases: Sequence[str], rng: Random, style: Style, *, noted: bool
) -> Chat:
    """A task, asked for with one of its hand-written ``phrases``."""
    terse = rng.random() < style.terse
    phrase = min(rng.choices(phrases, k=4), key=len) if terse else rng.choice(phrases)
    if not noted and rng.random() < _REDRAWN:
        phrase = redraw_values(phrase, example.command, rng)
    if terse and len(phrase.split()) < _TERSE_WORDS:
        question = ask(phrase, rng, style, framed=False)
    else:
        if rng.random() < 0.4 and not phrase.endswith("?"):
            phrase = reword(phrase, rng, style)
        if not noted and rng.random() < style.values:
            phrase = name_values(phrase, example.command, rng)
        question = ask(phrase, rng, style, name if rng.random() < 0.08 else None)
    return user(question), _reply_how(question, name, example, noted=noted)


def ask_task(
    page: Page, example: Example, task: Task | None, rng: Random, style: Style, *, noted: bool
) -> Chat:
    """A task of ``page``, mostly in colloquial wording if ``task`` is given."""
    if task is not None and rng.random() < SPOKEN_SHARE:
        phrases = task.phrases_for(page.name)
        return ask_spoken(page.name, example, phrases, rng, style, noted=noted)
    return ask_how(page, example, rng, style, noted=noted)


def ask_named(page: Page, example: Example, rng: Random, style: Style) -> Chat:
    """A task of ``page``, nearly always with the command's name in the question."""
    question = _question(example, page.name, rng, style, 0.85, noted=False)
    return user(question), _reply_how(question, page.name, example, noted=False)


def _reply_how(question: str, name: str, example: Example, *, noted: bool) -> ChatTurn:
    if noted:
        return reply(answer_how(name, example.what, example.command))
    command = carry(question, example.command)
    answer = reply(answer_how(name, example.plain, command))
    return replace(answer, weight=DESTRUCTIVE_WEIGHT) if warning(command) else answer


def ask_unknown(name: str, example: Example, rng: Random, style: Style) -> Chat:
    """A question about an unknown command, or for a task with it."""
    if rng.random() < 0.5:
        question = rng.choice(_WHAT).format(name)
    else:
        question = _question(example, name, rng, style, 1.0, noted=False)
    return user(question), reply(answer_unknown(name))


def ask_what(page: Page, rng: Random) -> Chat:
    """A question for the definition of a command."""
    shown = f"`{page.name}`" if rng.random() < 0.3 else page.name
    return user(rng.choice(_WHAT).format(shown)), reply(answer_what(page))


def ask_explained(page: Page, example: Example, rng: Random, *, noted: bool) -> Chat:
    """A question about what a command does."""
    command = example.command if noted else readable(example.command)
    question = rng.choice(_EXPLAIN).format(command)
    return user(question), reply(answer_explained(page.name, example))


def ask_examples(page: Page, rng: Random, *, noted: bool) -> Chat:
    """A request for examples of a command, answered with the first ones of its page."""
    question = rng.choice(_EXAMPLES).format(page.name)
    chosen = page.examples[:3]
    if not noted:
        chosen = tuple(Example(each.what, readable(each.command)) for each in chosen)
    return user(question), reply(answer_examples(page, chosen))


def answer_how(name: str, what: str, command: str) -> str:
    """The answer to "how do I ...", with a warning if ``command`` destroys something."""
    answer = f"Use `{name}`. {_sentence(what)}:\n\n```sh\n{command}\n```"
    warned = warning(command)
    return f"{answer}\n\n{warned}" if warned else answer


def answer_what(page: Page) -> str:
    """The answer to "what is ..."."""
    return f"`{page.name}`: {page.summary}"


def answer_explained(name: str, example: Example) -> str:
    """The answer to "what does this do"."""
    return f"It uses `{name}`. {_sentence(example.plain)}."


def answer_examples(page: Page, chosen: Sequence[Example]) -> str:
    """The answer to "show examples of ..."."""
    blocks = [f"Examples of `{page.name}`."]
    blocks += [f"{each.plain}:\n\n```sh\n{each.command}\n```" for each in chosen]
    return "\n\n".join(blocks)


def answer_unknown(name: str) -> str:
    """The answer about a command that is neither known nor in the notes."""
    return f"I do not know `{name}`. Put its documentation in the notes and ask again."


def _sentence(what: str) -> str:
    return what.rstrip(":.")


def notes_message(documents: Sequence[str], header: str = HEADER) -> str:
    """The content of the system message with ``documents``, in the given order."""
    return "\n\n".join((header, *(document.strip() for document in documents)))


def excerpts_message(excerpts: Sequence[PassageExcerpt]) -> str:
    """The system message with what retrieval shows, and how well it fits the question."""
    fit = describe_fit(max((each.fit for each in excerpts), default=0.0))
    return notes_message([each.text for each in excerpts], EXCERPTS_HEADER.format(fit=fit))


def excerpt_turns(excerpts: Sequence[PassageExcerpt]) -> Chat:
    """The turns before a question for which retrieval found ``excerpts``; none if it found none."""
    return (ChatTurn("system", excerpts_message(excerpts)),) if excerpts else ()
