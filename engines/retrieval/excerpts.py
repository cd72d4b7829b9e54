"""Excerpts: the list items of some passages that answer a question best.

A small model finds the right one of four tasks, but rarely of thirty. For 1,570 questions in
people's own words about unseen tldr pages, with the right page among two to four, the right item
ranks first in .74 and within the first four in .96.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from datastores.passages.chunks import FENCE, HEADING, HEADING_SEPARATOR, Chunk
from engines.retrieval.question_likelihood import AskedQuestion, TextWords, words_of_texts

MIN_FIT = 1.45
"""Minimum fit of an answer. The best item of two to four pages fits for .89 of 1,570 questions in
people's own words if the right page is among them, and for .12 if it is not."""
HARDLY_FIT = 1.27
"""Items with a lower fit do not seem to fit."""
_FITS = (
    (2.2, "fit"),
    (1.75, "probably fit"),
    (1.5, "may fit"),
    (HARDLY_FIT, "hardly fit"),
    (0.0, "do not seem to fit"),
)

INTRODUCTION_CHARACTERS = 120
"""Length of the introduction that a question model reads before each item."""

_LINK = re.compile(r"\S*https?://\S+")
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]")


@dataclass(frozen=True, slots=True)
class PassageExcerpt:
    """The part of a passage that is kept.

    Attributes:
        passage: index of the passage.
        text: its introduction and the items kept, best first.
        fit: fit of the best item; see `AskedQuestion.fit`.
    """

    passage: int
    text: str
    fit: float


def excerpts(
    chunks: Sequence[Chunk], question: AskedQuestion, limit: int, min_fit: float = 0.0
) -> list[PassageExcerpt]:
    """The best `limit` items of all `chunks`, each below its introduction, by chunk.

    Best first, ties by their order. A chunk without a list is one item; chunks without a kept item
    are left out.

    Args:
        min_fit: minimum fit of an item; see `AskedQuestion.fit`.
    """
    parsed = parse_chunks(chunks)
    lists = [(number, each) for number, one in enumerate(parsed) for each in one.lists]
    kept: dict[int, list[str]] = {}
    fits: dict[int, float] = {}
    fitting = [one for one in _ranked(parsed, question) if question.fit(one.score) >= min_fit]
    for one in _reordered(fitting, question)[:limit]:
        kept.setdefault(one.place, []).append(one.text)
        number = lists[one.place][0]
        fits[number] = max(fits.get(number, 0.0), question.fit(one.score))
    texts: dict[int, list[str]] = {}
    for place, items in kept.items():
        number, each = lists[place]
        texts.setdefault(number, []).extend(filter(None, (each.introduction, *items)))
    return [PassageExcerpt(number, "\n\n".join(texts[number]), fit) for number, fit in fits.items()]


def best_items(parsed: Sequence[ParsedChunk], question: AskedQuestion) -> list[RankedItem]:
    """The best item or paragraph of each of the chunks `parsed`."""
    return [_ranked([one], question)[0] for one in parsed]


def entry_text(introduction: str, item: str) -> str:
    """The text of an item for a question model."""
    before = _LINK.sub("", introduction)[:INTRODUCTION_CHARACTERS].strip()
    return "\n\n".join(filter(None, (before, item.strip())))


def describe_fit(fit: float) -> str:
    """The fit of the best excerpt in words for a model, to follow "notes that"."""
    return next(words for least, words in _FITS if fit >= least)


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item of a list with its score for a question.

    Attributes:
        score: see `AskedQuestion.score`; of prose, the score of its best paragraph.
        place: index of its list.
        text: the whole item.
        entry: the part that answers, as a question model reads it (`entry_text`).
    """

    score: float
    place: int
    text: str
    entry: str


@dataclass(slots=True)
class IntroducedList:
    """The items of a list, and the text between the previous list or heading and them."""

    introduction: str
    items: list[str]


@dataclass(frozen=True, slots=True)
class ParsedItem:
    """An item of the list with this index in its chunk, and its parts with their words."""

    place: int
    text: str
    parts: Sequence[tuple[str, TextWords]]


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """What a chunk is compared with questions by; it depends on the chunk alone."""

    lists: Sequence[IntroducedList]
    items: Sequence[ParsedItem]


def parse_chunks(chunks: Sequence[Chunk]) -> list[ParsedChunk]:
    """Parse `chunks`, whose words are tokenized in one batch."""
    found = [split_lists(chunk) for chunk in chunks]
    split = [
        [(place, item, _parts(item)) for place, each in enumerate(lists) for item in each.items]
        for lists in found
    ]
    words = words_of_texts(
        [
            (lists[place].introduction, part)
            for lists, items in zip(found, split, strict=True)
            for place, _, parts in items
            for part in parts
        ]
    )
    return [
        ParsedChunk(
            lists,
            [
                ParsedItem(place, item, [(part, next(words)) for part in parts])
                for place, item, parts in items
            ],
        )
        for lists, items in zip(found, split, strict=True)
    ]


def split_lists(chunk: Chunk) -> list[IntroducedList]:
    """The lists in a chunk; without a heading of its own, its innermost heading introduces the
    first: a later chunk of a long list would not say what it lists.

    Items begin at the margin, outside fenced code, and extend to the next item or heading.
    """
    title = chunk.heading.rpartition(HEADING_SEPARATOR)[2]
    found = [_introduced(block) for block in _blocks(chunk.content.split("\n"))]
    if title and not HEADING.match(chunk.content.partition("\n")[0]):
        found[0].introduction = f"# {title}\n\n{found[0].introduction}".strip()
    return found


def _introduced(parts: Sequence[str]) -> IntroducedList:
    """A list from its introduction and its items; a text without items is one item."""
    introduction, *items = parts
    return IntroducedList(introduction, items) if items else IntroducedList("", [introduction])


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Introduction and items of each list."""
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


def _ranked(parsed: Sequence[ParsedChunk], question: AskedQuestion) -> list[RankedItem]:
    """All items, best first, ties by their order."""
    scored, before = [], 0
    for chunk in parsed:
        for item in chunk.items:
            score, part = max(
                ((question.score(words), part) for part, words in item.parts),
                key=lambda one: one[0],
            )
            entry = entry_text(chunk.lists[item.place].introduction, part)
            scored.append(RankedItem(score, before + item.place, item.text, entry))
        before += len(chunk.lists)
    return sorted(scored, key=lambda one: -one.score)


def _reordered(items: Sequence[RankedItem], question: AskedQuestion) -> list[RankedItem]:
    """`items`, given by descending score, in the order of `AskedQuestion.order`."""
    order = question.order([one.score for one in items], [one.entry for one in items])
    return [items[place] for place in order]


def _parts(item: str) -> list[str]:
    """The texts that are compared with a question: an item of a list, or paragraphs of prose."""
    return [item] if _ITEM.match(item) else _PARAGRAPH_END.split(item)
