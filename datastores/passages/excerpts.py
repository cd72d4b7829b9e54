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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from datastores.passages.chunks import HEADING_SEPARATOR, Chunk
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

_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
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
    """The best `most` items of all `chunks`, those of one chunk below its introduction.

    Best first, ties by their order. A chunk without a list is one item. None of a chunk of which no
    item is kept.
    """
    parted = [split_items(chunk.content) for chunk in chunks]
    introductions = [_titled(head, chunk) for (head, _), chunk in zip(parted, chunks, strict=True)]
    keys = iter(
        _keys(
            [
                text
                for (_, items), head in zip(parted, introductions, strict=True)
                for text in (head, *items)
            ]
        )
    )
    ranked: list[tuple[float, int, str]] = []
    for number, (_, items) in enumerate(parted):
        introduced = next(keys)
        ranked += [(-_score(next(keys), introduced, asked), number, item) for item in items]
    ranked.sort(key=lambda entry: entry[:2])
    whole = sum(word.rarity for word in asked) or 1.0  # nothing may be asked
    kept: dict[int, list[str]] = {}
    fits: dict[int, float] = {}
    for score, number, item in ranked[:most]:
        kept.setdefault(number, []).append(item)
        fits.setdefault(number, -score / whole)
    return [
        Excerpt(number, "\n\n".join(filter(None, (introductions[number], *items))), fits[number])
        for number, items in kept.items()
    ]


def describe_fit(fit: float) -> str:
    """How well the best of some excerpts fits, in words for a model: after "notes that"."""
    return next(words for least, words in _FITS if fit >= least)


def split_items(text: str) -> tuple[str, list[str]]:
    """What introduces the list in `text`, and its items; a text without a list is one item.

    Items begin at the margin, outside of fenced code, and reach to the next.
    """
    lines = text.split("\n")
    starts = list(_starts(lines))
    if not starts:
        return "", [text.strip("\n")]
    ends = [*starts[1:], len(lines)]
    items = ["\n".join(lines[a:b]).strip("\n") for a, b in zip(starts, ends, strict=True)]
    return "\n".join(lines[: starts[0]]).strip("\n"), items


def _starts(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of the lines at which items begin."""
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and _ITEM.match(line):
            yield number


def _titled(introduction: str, chunk: Chunk) -> str:
    """`introduction` with the chunk's innermost heading, unless it has one or the chunk has none.

    A later part of a long list would not say what it lists.
    """
    title = chunk.heading.rpartition(HEADING_SEPARATOR)[2]
    if not title or chunk.content.startswith("#"):
        return introduction
    return f"# {title}\n\n{introduction}".strip()


def _keys(texts: Sequence[str]) -> list[Collection[int]]:
    """The words of each text as keys; see `word_counts.key_of`."""
    counted = count_words([("", text) for text in texts])
    return [frozenset((words >> np.uint64(COUNT_BITS)).tolist()) for words in counted]


def _score(own: Collection[int], introduced: Collection[int], asked: Sequence[AskedWord]) -> float:
    return sum(
        word.rarity * max(word.best(own), INTRODUCTION_SHARE * word.best(introduced))
        for word in asked
    )
