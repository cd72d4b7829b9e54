"""What a chat is made of: turns, and single exchanges of question and answer.

Owns the phrases that ask for a definition, examples or an explanation. Knows nothing of notes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from assets.recipe import replies
from assets.recipe.material_files import Remark, Task
from assets.recipe.pages import Example, Page
from assets.recipe.wording import Style, ask, reword


@dataclass(frozen=True)
class Turn:
    """One message; ``weight`` is the weight of the loss on its tokens.

    ``first`` is the weight of its first word, which decides whether the notes fit and is one token
    among fifty; ``command`` that of its fenced commands; zero is for the same as the rest.
    """

    role: str
    text: str
    weight: float = 0.0
    first: float = 0.0
    command: float = 0.0


Chat = tuple[Turn, ...]


@dataclass(frozen=True)
class Pool:
    """All that chats are made from.

    ``core`` are the known pages of everyday tasks, ``noted`` all pages that may stand in notes.
    """

    core: Sequence[Page]
    known: Sequence[Page]
    noted: Sequence[Page]
    tasks: Sequence[Task]
    remarks: Sequence[Remark]
    outside: Sequence[str]

    @cached_property
    def phrases(self) -> Mapping[str, Sequence[str]]:
        """How people put a task of ``tasks``, by what a page says it does."""
        return {task.answer.what: task.phrases for task in self.tasks}


Kind = Callable[[Pool, Random, Style], Chat]

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
_EXPLAIN = (
    "what does `{}` do?",
    "explain `{}`",
    "what does {} do?",
    "explain this command: {}",
    "what is this: `{}`",
    "what happens when I run `{}`?",
    "what would `{}` do?",
)


def user(text: str) -> Turn:
    """What the person says."""
    return Turn("user", text)


def reply(text: str) -> Turn:
    """What the model is to say; the loss is taken here."""
    return Turn("assistant", text, 1.0)


def _question(example: Example, name: str, rng: Random, style: Style, named: float) -> str:
    phrase = reword(example.plain, rng, style)
    bare = phrase.lower().startswith(_GENERIC) or len(phrase.split()) < 3
    return ask(phrase, rng, style, name if bare or rng.random() < named else None)


def ask_how(page: Page, example: Example, rng: Random, style: Style, *, plain: bool) -> Chat:
    """A task of ``page``; ``plain`` answers drop the page's mnemonic brackets."""
    what = example.plain if plain else example.what
    question = _question(example, page.name, rng, style, 0.45)
    return user(question), reply(replies.use(page.name, what, example.command))


def ask_spoken(
    name: str, example: Example, phrases: Sequence[str], rng: Random, style: Style, *, plain: bool
) -> Chat:
    """A task as people put it, in one of its hand-written ``phrases``."""
    phrase = rng.choice(phrases)
    if rng.random() < 0.4 and not phrase.endswith("?"):
        phrase = reword(phrase, rng, style)
    question = ask(phrase, rng, style, name if rng.random() < 0.08 else None)
    what = example.plain if plain else example.what
    return user(question), reply(replies.use(name, what, example.command))


def ask_named(page: Page, example: Example, rng: Random, style: Style) -> Chat:
    """A task of ``page``, its command nearly always named."""
    question = _question(example, page.name, rng, style, 0.85)
    return user(question), reply(replies.use(page.name, example.plain, example.command))


def ask_unknown(name: str, example: Example, rng: Random, style: Style) -> Chat:
    """A command nobody knows: what it is, or how it does a task."""
    if rng.random() < 0.5:
        question = rng.choice(_WHAT).format(name)
    else:
        question = _question(example, name, rng, style, 1.0)
    return user(question), reply(replies.unknown(name))


def ask_what(page: Page, rng: Random) -> Chat:
    """What is X?"""
    shown = f"`{page.name}`" if rng.random() < 0.3 else page.name
    return user(rng.choice(_WHAT).format(shown)), reply(replies.define(page))


def ask_explained(page: Page, example: Example, rng: Random) -> Chat:
    """What does this command do?"""
    question = rng.choice(_EXPLAIN).format(example.command)
    return user(question), reply(replies.explain(page.name, example))


def ask_examples(page: Page, rng: Random) -> Chat:
    """Examples of a command: the page's first ones."""
    question = rng.choice(_EXAMPLES).format(page.name)
    return user(question), reply(replies.examples(page, page.examples[:3]))
