"""Excerpts: of the lists in some passages, the items that answer one question best.

A small model finds the right one of four tasks, and rarely of thirty. An item is known by its own
words, by their associates, and nearly as well by what introduces the list. On 450 questions in
people's own words about tldr pages, with the right page among two to four: the right item is the
first in .53 and one of four in .86; adding up what item and introduction have finds .49.

Owns where items begin and which are kept. Refuses to know which passages are relevant and how many
items a model takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from datastores.passages.chunks import FENCE, HEADING, HEADING_SEPARATOR, Chunk
from datastores.passages.question_words import AskedWord
from datastores.passages.word_counts import keys_in

INTRODUCTION_SHARE = 0.9
"""What a word counts that only the introduction of a list has."""

_FITS = (
    (0.5, "fit"),
    (0.35, "probably fit"),
    (0.2, "may fit"),
    (0.1, "hardly fit"),
    (0.0, "do not seem to fit"),
)

_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]")


@dataclass(frozen=True, slots=True)
class PassageExcerpt:
    """What is kept of a passage.

    Attributes:
        passage: its place among those given.
        text: its introduction and the items kept, the best first.
        fit: the share of the question, by the rarity of its words, that the best of them has.
    """

    passage: int
    text: str
    fit: float


def excerpts(
    chunks: Sequence[Chunk], asked: Sequence[AskedWord], most: int
) -> list[PassageExcerpt]:
    """The best `most` items of all `chunks`, each below what introduces it.

    Best first, ties by their order. What has no list is one item. Nothing of a chunk of which no
    item is kept.
    """
    lists = [(number, each) for number, chunk in enumerate(chunks) for each in split_lists(chunk)]
    ranked = _ranked([each for _, each in lists], asked)[:most]
    whole = sum(word.rarity for word in asked) or 1.0  # nothing may be asked
    kept: dict[int, list[str]] = {}
    fits: dict[int, float] = {}
    for score, place, item in ranked:
        kept.setdefault(place, []).append(item)
        fits.setdefault(lists[place][0], score / whole)
    texts: dict[int, list[str]] = {}
    for place, items in kept.items():
        number, each = lists[place]
        texts.setdefault(number, []).extend(filter(None, (each.introduction, *items)))
    return [PassageExcerpt(number, "\n\n".join(texts[number]), fit) for number, fit in fits.items()]


def describe_fit(fit: float) -> str:
    """How well the best of some excerpts fits, in words for a model: after "notes that"."""
    return next(words for least, words in _FITS if fit >= least)


@dataclass(slots=True)
class IntroducedList:
    """The items of a list, and what precedes them, as far as the list or heading before."""

    introduction: str
    items: list[str]


def split_lists(chunk: Chunk) -> list[IntroducedList]:
    """The lists in a chunk; its innermost heading introduces the first, if it has no other.

    A later part of a long list would not say what it lists. Items begin at the margin, outside of
    fenced code, and reach to the next or to a heading.
    """
    title = chunk.heading.rpartition(HEADING_SEPARATOR)[2]
    found = [_introduced(block) for block in _blocks(chunk.content.split("\n"))]
    if title and not HEADING.match(chunk.content.partition("\n")[0]):
        found[0].introduction = f"# {title}\n\n{found[0].introduction}".strip()
    return found


def _introduced(parts: Sequence[str]) -> IntroducedList:
    """A list from its introduction and its items; a text without items is one."""
    introduction, *items = parts
    return IntroducedList(introduction, items) if items else IntroducedList("", [introduction])


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """What introduces each list, and its items."""
    blocks: list[list[list[str]]] = [[[]]]
    fence = ""
    for line in lines:
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and HEADING.match(line) and len(blocks[-1]) > 1:
            blocks.append([[]])
        elif not fence and _ITEM.match(line):
            blocks[-1].append([])
        blocks[-1][-1].append(line)
    return [["\n".join(part).strip("\n") for part in block] for block in blocks]


def _ranked(
    lists: Sequence[IntroducedList], asked: Sequence[AskedWord]
) -> list[tuple[float, int, str]]:
    """Score, number of the list and text of each item, the best first, ties by their order."""
    keys = iter(keys_in([text for each in lists for text in (each.introduction, *each.items)]))
    scored: list[tuple[float, int, str]] = []
    for place, each in enumerate(lists):
        introduced = next(keys)
        scored += [(_score(next(keys), introduced, asked), place, item) for item in each.items]
    return sorted(scored, key=lambda entry: -entry[0])


def _score(own: Collection[int], introduced: Collection[int], asked: Sequence[AskedWord]) -> float:
    return sum(
        word.rarity * max(word.best(own), INTRODUCTION_SHARE * word.best(introduced))
        for word in asked
    )
