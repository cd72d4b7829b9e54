"""Pages that cannot be known: invented names, flags and commands, so that only copying helps.

Owns the invention; `with_notes` decides what is asked about such a page. Every function is a pure
function of its arguments and the random generator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from assets.recipe.pages import Example, Page


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SHORT = 40
_TRIES = 200
_ONSETS = _words("b br c ch cl d dr f fl g gr h j k kl l m n p pl qu r s sh sk st t tr v w x z")
_VOWELS = _words("a e i o u ai ee oo y")
_CODAS = _words("b ck d g k l m n nt p r rt s st t x z") + ("",) * 8
_LONG_FLAG = re.compile(r"--[a-z][\w-]*")
_SHORT_FLAG = re.compile(r"(?<=[ \[|])-[a-zA-Z](?=[ |\]}]|$)")
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")


def invent_name(rng: Random) -> str:
    """A command name that does not exist: ``zorvik``, ``mo-trel``, ``kx7``."""
    kind = rng.random()
    if kind < 0.15:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(4))
    word = "".join(_syllable(rng) for _ in range(rng.randint(1, 3)))
    return f"{word}-{_syllable(rng)}" if kind < 0.35 else word


def _syllable(rng: Random) -> str:
    return rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)


def mutate_command(command: str, rng: Random, strength: float) -> str:
    """``command`` with flags, and some placeholders, replaced by invented ones."""

    def maybe(replacement: str) -> str:
        return replacement if rng.random() < strength else ""

    def long_flag(match: re.Match[str]) -> str:
        return maybe(f"--{invent_name(rng)}") or match[0]

    def short_flag(match: re.Match[str]) -> str:
        return (
            maybe(f"-{rng.choice('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPRSTUVWX')}") or match[0]
        )

    def placeholder(match: re.Match[str]) -> str:
        return maybe(f"{{{{{invent_name(rng).replace('-', '_')}}}}}") or match[0]

    command = _LONG_FLAG.sub(long_flag, command)
    command = _SHORT_FLAG.sub(short_flag, command)
    return _PLACEHOLDER.sub(placeholder, command)


def rename(page: Page, name: str) -> Page:
    """``page`` with its command called ``name`` wherever it is a separate word."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(page.name)}(?![\w-])")

    def swap(text: str) -> str:
        return pattern.sub(lambda _: name, text)

    examples = tuple(Example(swap(each.what), swap(each.command)) for each in page.examples)
    return render(replace(page, name=name, summary=swap(page.summary), examples=examples))


def disguise(page: Page, rng: Random) -> Page:
    """``page`` under an invented name, with changed flags, its commands sometimes shuffled.

    What the model remembers of the page is then misleading; only the notes are right.
    """
    page = rename(page, invent_name(rng)) if rng.random() < 0.7 else page
    strength = rng.choice((0.0, 0.4, 0.8))
    commands = [mutate_command(each.command, rng, strength) for each in page.examples]
    if rng.random() < 0.4:
        rng.shuffle(commands)
    pairs = zip(page.examples, commands, strict=True)
    return render(
        replace(page, examples=tuple(Example(each.what, command) for each, command in pairs))
    )


def invent_page(pool: Sequence[Page], rng: Random) -> Page:
    """A page for a command that does not exist, with tasks drawn from all pages of ``pool``."""
    examples = [rng.choice(rng.choice(pool).examples) for _ in range(rng.randint(2, 8))]
    return _page_of(examples, pool, rng)


def invent_of(examples: Sequence[Example], pool: Sequence[Page], rng: Random) -> Page:
    """A page for a command that does not exist, with tasks drawn from ``examples``."""
    return _page_of(rng.sample(examples, min(len(examples), rng.randint(2, 8))), pool, rng)


def invent_list(pool: Sequence[Page], rng: Random) -> Page:
    """The same with many short tasks and commands, whose beginnings are hard to tell apart."""
    wanted, examples = rng.randint(4, 12), []
    for _ in range(_TRIES):
        example = rng.choice(rng.choice(pool).examples)
        if max(len(example.what), len(example.command)) <= _SHORT:
            examples.append(example)
        if len(examples) == wanted:
            break
    return _page_of(examples, pool, rng) if examples else invent_page(pool, rng)


def _page_of(examples: Sequence[Example], pool: Sequence[Page], rng: Random) -> Page:
    """``examples`` as examples of one invented command."""
    name = invent_name(rng)
    changed = []
    for example in examples:
        rest = example.command.partition(" ")[2]
        command = mutate_command(f"{name} {rest}".strip(), rng, 0.7)
        changed.append(Example(example.what, command))
    return render(Page(name, "common", rng.choice(pool).summary, tuple(changed), ""))


def excerpt(page: Page, rng: Random, most: int) -> Page:
    """``page`` with at most ``most`` consecutive examples."""
    count = min(len(page.examples), rng.randint(2, most))
    first = rng.randint(0, len(page.examples) - count)
    return render(replace(page, examples=page.examples[first : first + count]))


def render(page: Page) -> Page:
    """``page`` with its Markdown regenerated from its fields, in the form of the tldr pages."""
    blocks = [f"# {page.name}", f"> {page.summary}"]
    for example in page.examples:
        blocks += [f"- {example.what}:", f"`{example.command}`"]
    return replace(page, markdown="\n\n".join(blocks))
