"""The tldr pages as records, and which of them are used in training.

Owns reading a checkout (or the packed archive) of the tldr project and splitting it. Knows
nothing of chats, tokens or models.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assets.recipe.material import read_lines
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
    """Pages by what the model may learn from them.

    ``known`` are asked about without notes; ``familiar`` are put into notes and rarely asked about
    without them; ``held_out`` are never seen in training.
    """

    known: tuple[Page, ...]
    familiar: tuple[Page, ...]
    held_out: tuple[Page, ...]


def read_pages(source: Path) -> list[Page]:
    """Pages of a tldr checkout or ``.tar.*`` archive, one per name, in order of name.

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
    """Held-out pages by a hash of the name, known ones by the list in ``material/``.

    Where a small checkout leaves too few held out, the last familiar pages are added.
    """
    listed = _known_names()
    known: list[Page] = []
    familiar: list[Page] = []
    held_out: list[Page] = []
    for page in pages:
        if listed(page.name):
            known.append(page)
        elif _percent(page.name) < HELD_OUT_PERCENT:
            held_out.append(page)
        else:
            familiar.append(page)
    while len(held_out) < _LEAST_HELD_OUT and len(familiar) > _LEAST_HELD_OUT:
        held_out.append(familiar.pop())
    return Split(tuple(known), tuple(familiar), tuple(held_out))


def _known_names() -> Callable[[str], bool]:
    lines = read_lines("known_pages.txt")
    pattern = re.compile("|".join(fnmatch.translate(line) for line in lines))
    return lambda name: pattern.match(name) is not None


def _percent(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % 100
