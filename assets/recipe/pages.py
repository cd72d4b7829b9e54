"""Reads the pages of the tldr project, splits them for training, and invents pages.

A checkout and an archive of the project are both read. Invented names, flags and commands cannot be
known, so only copying helps; they depend on the arguments and the random generator alone.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from assets.recipe import read_lines, words
from datastores.errors import InputError

PLATFORMS = ("common", "linux", "osx", "freebsd", "openbsd", "netbsd", "windows", "android")
"""Platforms read, in order of preference where two pages share a name."""

HELD_OUT_PERCENT = 4
_LEAST_HELD_OUT = 2

_EXAMPLE = re.compile(r"^- (?P<what>.+?):?\n\n`(?P<command>[^\n]+)`$", re.MULTILINE)
_MNEMONIC = re.compile(r"\[(\w)\]")


@dataclass(frozen=True)
class Example:
    """One task of a page: what it does, and the command, placeholders included."""

    what: str
    command: str

    @property
    def plain(self) -> str:
        """The task without the pages' mnemonic brackets: ``E[x]tract`` reads ``Extract``."""
        return _MNEMONIC.sub(r"\1", self.what)


@dataclass(frozen=True)
class Page:
    """One page: its title (``git commit``), summary, examples and raw Markdown."""

    name: str
    platform: str
    summary: str
    examples: tuple[Example, ...]
    markdown: str


@dataclass(frozen=True)
class Split:
    """Pages by their use in training.

    ``known`` pages are asked about without notes; ``familiar`` ones are put into notes and rarely
    asked about without them; ``held_out`` ones are never seen.
    """

    known: tuple[Page, ...]
    familiar: tuple[Page, ...]
    held_out: tuple[Page, ...]


def read_pages(source: Path) -> list[Page]:
    """Read the pages of a tldr checkout or ``.tar.*`` archive, one per name, sorted by name.

    Aliases and pages without a usable example are left out.

    Raises:
        InputError: ``source`` does not exist or holds no pages.
    """
    if not source.exists():
        raise InputError(f"{source}: no tldr pages here; clone github.com/tldr-pages/tldr")
    chosen: dict[str, Page] = {}
    for platform, text in sorted(_texts(source), key=lambda pair: PLATFORMS.index(pair[0])):
        page = parse_page(text, platform)
        if page is not None:
            chosen.setdefault(page.name, page)
    if not chosen:
        raise InputError(f"{source}: holds no pages/<platform>/*.md; is it a tldr checkout?")
    return sorted(chosen.values(), key=lambda page: page.name)


def _texts(source: Path) -> Iterator[tuple[str, str]]:
    if source.is_dir():
        for path in sorted(source.glob("pages/*/*.md")):
            if path.parent.name in PLATFORMS:
                yield path.parent.name, path.read_text(encoding="utf-8")
        return
    with tarfile.open(source) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if len(parts) < 3 or parts[-3] != "pages" or parts[-2] not in PLATFORMS:
                continue
            handle = archive.extractfile(member)
            if handle is not None and member.name.endswith(".md"):
                yield parts[-2], handle.read().decode("utf-8")


def parse_page(text: str, platform: str) -> Page | None:
    """The page in ``text``; None for an alias or a page without a usable example."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# ") or "is an alias of" in text:
        return None
    summary = " ".join(
        line[2:].strip()
        for line in lines
        if line.startswith("> ") and not line.startswith(("> More information", "> See also"))
    )
    examples = tuple(
        Example(match["what"].strip(), match["command"]) for match in _EXAMPLE.finditer(text)
    )
    if not examples or not summary:
        return None
    return Page(lines[0][2:].strip(), platform, summary, examples, text.strip())


def split(pages: Iterable[Page]) -> Split:
    """Split pages: known ones by the list in ``material/``, held-out ones by a hash of the name.

    If a small checkout leaves too few held out, the last familiar pages are added.
    """
    known: list[Page] = []
    familiar: list[Page] = []
    held_out: list[Page] = []
    for page in pages:
        if _is_known(page.name):
            known.append(page)
        elif is_held_out(page.name):
            held_out.append(page)
        else:
            familiar.append(page)
    while len(held_out) < _LEAST_HELD_OUT and len(familiar) > _LEAST_HELD_OUT:
        held_out.append(familiar.pop())
    return Split(tuple(known), tuple(familiar), tuple(held_out))


def is_held_out(name: str) -> bool:
    """Whether training must see neither the page of this name nor anything written for it."""
    return not _is_known(name) and _percent(name) < HELD_OUT_PERCENT


def _is_known(name: str) -> bool:
    return _known_names().match(name) is not None


@cache
def _known_names() -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, read_lines("known_pages.txt"))))


def _percent(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % 100


_SHORT = 40
_TRIES = 200
_ONSETS = words("b br c ch cl d dr f fl g gr h j k kl l m n p pl qu r s sh sk st t tr v w x z")
_VOWELS = words("a e i o u ai ee oo y")
_CODAS = words("b ck d g k l m n nt p r rt s st t x z") + ("",) * 8
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
    """``command`` with flags and simple placeholders invented, each with chance ``strength``."""

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
    """``page`` with its command renamed to ``name`` wherever it is a separate word."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(page.name)}(?![\w-])")

    def swap(text: str) -> str:
        return pattern.sub(lambda _: name, text)

    examples = tuple(Example(swap(each.what), swap(each.command)) for each in page.examples)
    return render(replace(page, name=name, summary=swap(page.summary), examples=examples))


def disguise(page: Page, rng: Random) -> Page:
    """``page`` under an invented name, with changed flags, its commands sometimes shuffled.

    What the model has memorised about the page then misleads; only the notes are right.
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
    """An invented page with many short tasks and commands, whose beginnings look alike."""
    wanted, examples = rng.randint(4, 12), []
    for _ in range(_TRIES):
        example = rng.choice(rng.choice(pool).examples)
        if max(len(example.what), len(example.command)) <= _SHORT:
            examples.append(example)
        if len(examples) == wanted:
            break
    return _page_of(examples, pool, rng) if examples else invent_page(pool, rng)


def _page_of(examples: Sequence[Example], pool: Sequence[Page], rng: Random) -> Page:
    """A page with ``examples`` for one invented command."""
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
