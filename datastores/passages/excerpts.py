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

import numpy as np

from datastores.passages.chunks import FENCE, HEADING, HEADING_SEPARATOR, Chunk
from datastores.passages.question_words import AskedWord
from datastores.passages.word_counts import COUNT_BITS, count_words

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
class Excerpt:
    """What is kept of a passage.

    Attributes:
        passage: its place among those given.
        text: its introduction and the items kept, the best first.
        fit: the share of the question, by the rarity of its words, that the best of them has.
    """

    passage: int
    text: str
    fit: float


def excerpts(chunks: Sequence[Chunk], asked: Sequence[AskedWord], most: int) -> list[Excerpt]:
    """The best `most` items of all `chunks`, each below what introduces it.

    Best first, ties by their order. What has no list is one item. Nothing of a chunk of which no
    item is kept.
    """
    lists = [(number, each) for number, chunk in enumerate(chunks) for each in split_lists(chunk)]
    keys = iter(_keys([text for _, each in lists for text in (each.introduction, *each.items)]))
    ranked: list[tuple[float, int, str]] = []
    for place, (_, each) in enumerate(lists):
        introduced = next(keys)
        ranked += [(-_score(next(keys), introduced, asked), place, item) for item in each.items]
    ranked.sort(key=lambda entry: entry[:2])
    whole = sum(word.rarity for word in asked) or 1.0  # nothing may be asked
    kept: dict[int, list[str]] = {}
    fits: dict[int, float] = {}
    shown = set[int]()
    for score, place, item in ranked[:most]:
        number, each = lists[place]
        introduction = () if place in shown or not each.introduction else (each.introduction,)
        shown.add(place)
        kept.setdefault(number, []).extend((*introduction, item))
        fits.setdefault(number, -score / whole)
    return [Excerpt(number, "\n\n".join(texts), fits[number]) for number, texts in kept.items()]


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


def _keys(texts: Sequence[str]) -> list[Collection[int]]:
    """The words of each text as keys; see `word_counts.key_of`."""
    counted = count_words([("", text) for text in texts])
    return [frozenset((words >> np.uint64(COUNT_BITS)).tolist()) for words in counted]


def _score(own: Collection[int], introduced: Collection[int], asked: Sequence[AskedWord]) -> float:
    return sum(
        word.rarity * max(word.best(own), INTRODUCTION_SHARE * word.best(introduced))
        for word in asked
    )
