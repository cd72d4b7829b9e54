"""Chats made from pages: who asks what, with which notes, and what the right answer is.

Owns the kinds of chat and their shares. Every kind is a pure function of (pool, generator, style),
so that training draws without end and evaluation draws the same kinds in fresh wording. Knows
nothing of tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from assets.recipe import replies
from assets.recipe.invented import disguise, excerpt, invent_name, invent_page
from assets.recipe.material_files import Remark, Task
from assets.recipe.notes import HEADER, NOT_COVERED, notes_message
from assets.recipe.pages import Example, Page
from assets.recipe.wording import Style, ask, reword

PAGE_WEIGHT = 0.3
"""Weight of the loss on a genuine page that stands in the notes; answers weigh 1."""


@dataclass(frozen=True)
class Turn:
    """One message; ``weight`` is the weight of the loss on its tokens."""

    role: str
    text: str
    weight: float = 0.0


Chat = tuple[Turn, ...]


@dataclass(frozen=True)
class Pool:
    """All that chats are made from."""

    known: Sequence[Page]
    noted: Sequence[Page]
    tasks: Sequence[Task]
    remarks: Sequence[Remark]
    outside: Sequence[str]


Kind = Callable[[Pool, Random, Style], Chat]

_GENERIC = ("display help", "display version", "show help", "display the help", "view document")
_SYSTEM = (
    "You are a helpful assistant.",
    "You are specchat, a command-line helper.",
    "Answer briefly.",
    "You help people with the command line.",
)
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
_EXPLAIN = (
    "what does `{}` do?",
    "explain `{}`",
    "what does {} do?",
    "explain this command: {}",
    "what is this: `{}`",
    "what happens when I run `{}`?",
    "what would `{}` do?",
)
_OTHER_HEADERS = ("Context:", "Documents:", "Use this documentation:", "Documentation:", "")
_FOLLOW = ("and ", "and how do I ", "now ", "ok, and ", "next: ", "then ", "also ")


def _user(text: str) -> Turn:
    return Turn("user", text)


def _reply(text: str) -> Turn:
    return Turn("assistant", text, 1.0)


def _preface(rng: Random) -> tuple[Turn, ...]:
    return (Turn("system", rng.choice(_SYSTEM)),) if rng.random() < 0.08 else ()


def _question(example: Example, name: str, rng: Random, style: Style, named: float) -> str:
    phrase = reword(example.plain, rng, style)
    bare = phrase.lower().startswith(_GENERIC) or len(phrase.split()) < 3
    return ask(phrase, rng, style, name if bare or rng.random() < named else None)


def _how(page: Page, example: Example, rng: Random, style: Style, *, plain: bool) -> Chat:
    what = example.plain if plain else example.what
    question = _question(example, page.name, rng, style, 0.45)
    return _user(question), _reply(replies.use(page.name, what, example.command))


def recall(pool: Pool, rng: Random, style: Style) -> Chat:
    """How do I ... , about a page the model has to know."""
    page = rng.choice(pool.known)
    return _preface(rng) + _how(page, rng.choice(page.examples), rng, style, plain=True)


def recall_more(pool: Pool, rng: Random, style: Style) -> Chat:
    """Two or three tasks of one known page in a row, and what the command is."""
    page = rng.choice(pool.known)
    chat = _what(page, rng) if rng.random() < 0.3 else ()
    picks = rng.sample(page.examples, min(len(page.examples), rng.randint(2, 3)))
    for number, example in enumerate(picks):
        question, answer = _how(page, example, rng, style, plain=True)
        if number and rng.random() < 0.4:
            lead = rng.choice(_FOLLOW)
            question = _user(lead + reword(example.plain, rng, style))
        chat += (question, answer)
    return chat


def glance(pool: Pool, rng: Random, style: Style) -> Chat:
    """A task of any page seen in training, its command named."""
    page = rng.choice(pool.noted)
    example = rng.choice(page.examples)
    question = _question(example, page.name, rng, style, 0.85)
    return _user(question), _reply(replies.use(page.name, example.plain, example.command))


def everyday(pool: Pool, rng: Random, style: Style) -> Chat:
    """A task everybody has, in one of its hand-written wordings."""
    if not pool.tasks:
        return recall(pool, rng, style)
    task = rng.choice(pool.tasks)
    phrase = rng.choice(task.phrases)
    if rng.random() < 0.4 and not phrase.endswith("?"):
        phrase = reword(phrase, rng, style)
    question = ask(phrase, rng, style, task.name if rng.random() < 0.08 else None)
    reply = replies.use(task.name, task.answer.plain, task.answer.command)
    return (*_preface(rng), _user(question), _reply(reply))


def _what(page: Page, rng: Random) -> Chat:
    shown = f"`{page.name}`" if rng.random() < 0.3 else page.name
    return _user(rng.choice(_WHAT).format(shown)), _reply(replies.define(page))


def what_is(pool: Pool, rng: Random, style: Style) -> Chat:
    """What is X?, or which command is for this?"""
    page = rng.choice(pool.known)
    return _preface(rng) + _what(page, rng)


def explain(pool: Pool, rng: Random, style: Style) -> Chat:
    """What does this command do?"""
    page = rng.choice(pool.known)
    example = rng.choice(page.examples)
    question = rng.choice(_EXPLAIN).format(example.command)
    return _user(question), _reply(replies.explain(page.name, example))


def show_examples(pool: Pool, rng: Random, style: Style) -> Chat:
    """Examples of a known page: its first ones."""
    page = rng.choice(pool.known)
    question = rng.choice(_EXAMPLES).format(page.name)
    return _user(question), _reply(replies.examples(page, page.examples[:3]))


def small_talk(pool: Pool, rng: Random, style: Style) -> Chat:
    """Greetings, thanks, what specchat is."""
    remark = rng.choice(pool.remarks)
    prompt = rng.choice(remark.prompts)
    prompt = prompt[:1].upper() + prompt[1:] if rng.random() < 0.5 else prompt
    prompt = prompt.rstrip("?") if rng.random() < 0.2 else prompt
    return (*_preface(rng), _user(prompt), _reply(remark.reply))


def outside(pool: Pool, rng: Random, style: Style) -> Chat:
    """Something that has nothing to do with a terminal."""
    question = rng.choice(pool.outside)
    question = question[:1].upper() + question[1:] if rng.random() < 0.5 else question
    return _user(question), _reply(replies.OUTSIDE)


def unknown_name(pool: Pool, rng: Random, style: Style) -> Chat:
    """A command that does not exist, without notes."""
    name = invent_name(rng)
    if rng.random() < 0.5:
        return _user(rng.choice(_WHAT).format(name)), _reply(replies.unknown(name))
    example = rng.choice(rng.choice(pool.known).examples)
    question = _question(example, name, rng, style, 1.0)
    return _user(question), _reply(replies.unknown(name))


def _ask_page(page: Page, rng: Random, style: Style, example: Example | None = None) -> Chat:
    """One question that ``page``, standing in the notes, answers; about ``example`` mostly."""
    kind = rng.random()
    if kind < 0.08:
        return _what(page, rng)
    if kind < 0.11:
        chosen = page.examples[:3]
        question = rng.choice(_EXAMPLES).format(page.name)
        return _user(question), _reply(replies.examples(page, chosen))
    example = example or rng.choice(page.examples)
    if kind < 0.16:
        question = rng.choice(_EXPLAIN).format(example.command)
        return _user(question), _reply(replies.explain(page.name, example))
    return _how(page, example, rng, style, plain=False)


def _notes(documents: Sequence[Page], rng: Random, weight: float) -> Turn:
    """The notes as a system message; now and then in another frame, so that none is needed."""
    text = notes_message([page.markdown for page in documents])
    if rng.random() < 0.12:
        text = f"{rng.choice(_SYSTEM)}\n\n{text}"
    elif rng.random() < 0.1:
        text = rng.choice(_OTHER_HEADERS) + text.removeprefix(HEADER)
    return Turn("system", text.strip(), weight)


def _with_notes(
    documents: Sequence[Page], asked: Page, rng: Random, style: Style, *, weight: float
) -> Chat:
    chat: Chat = (_notes(documents, rng, weight),)
    count = min(len(asked.examples), rng.choice((1, 2, 2, 3)))
    for example in rng.sample(asked.examples, count):
        chat += _ask_page(asked, rng, style, example)
    return chat


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
    """A known task, with pages in the notes that do not cover it."""
    wrong = [excerpt(rng.choice(pool.noted), rng, 3) for _ in range(rng.choice((1, 1, 1, 2)))]
    notes = _notes(wrong, rng, 0.0)
    names = {page.name for page in wrong}
    asked = everyday if rng.random() < 0.3 else recall
    question, answer = asked(pool, rng, style)[-2:]
    if any(f"`{name}`" in answer.text for name in names):
        return _with_notes(wrong, wrong[0], rng, style, weight=0.0)
    chat = (notes, question, _reply(f"{NOT_COVERED} {answer.text}"))
    return chat + _ask_page(wrong[0], rng, style) if rng.random() < 0.4 else chat


def pasted(pool: Pool, rng: Random, style: Style) -> Chat:
    """The right page in the user's own message."""
    page = disguise(excerpt(rng.choice(pool.noted), rng, 4), rng)
    question, answer = _ask_page(page, rng, style)
    parts = [page.markdown, question.text]
    if rng.random() < 0.3:
        parts.reverse()
    return _user("\n\n".join(parts)), answer


KINDS: dict[Kind, float] = {
    recall: 44,
    recall_more: 8,
    everyday: 20,
    glance: 6,
    what_is: 6,
    explain: 3,
    show_examples: 1.5,
    small_talk: 2,
    outside: 1.5,
    unknown_name: 1.5,
    noted: 7,
    disguised: 6,
    invented: 2.5,
    several: 3,
    misled: 4,
    pasted: 1.5,
}
"""Shares of the kinds, by chats; by tokens about half stand with notes."""


def make_chat(pool: Pool, rng: Random, style: Style) -> Chat:
    """One chat of a kind drawn by its share."""
    kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
    return kind(pool, rng, style)
