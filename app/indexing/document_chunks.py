"""Cuts a document into the chunks that are searched, each with what it is about in its heading.

A chunk such as "front 4.5 bar, rear 5 bar" says what it is about only together with the headings
above it, the name of its note, or the question that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from datastores.library.documents import Part
from datastores.passages.chunks import HEADING_SEPARATOR, Chunk, split
from engines.retrieval.question_words import split_words

ASSISTANT = "assistant"
MAX_QUESTION = 120
"""Characters of a question in the heading of the rest of its answer."""


def document_name(file: str, title: str) -> str:
    """What a person calls a document: the title of a chat, or the name of a file without suffix."""
    return PurePath(file).stem if title.startswith(PurePath(file).name) or title == file else title


def chunks_of(parts: Sequence[Part], name: str) -> Iterator[tuple[int, Chunk]]:
    """The chunks of a document in order, each with the number of its part.

    A message of a chat and the answers to it are cut as one text, in the part of the message.

    Args:
        name: from `document_name`; begins a heading that does not contain its words.
    """
    numbers = exchange(parts, 0)
    while numbers:
        texts = [parts[number].text for number in numbers]
        question = " ".join(texts[0].split())[:MAX_QUESTION] if len(texts) > 1 else ""
        for chunk in split("\n\n".join(texts)):
            above = [name, "" if chunk.first_line == 1 else question]
            yield numbers.start, replace(chunk, heading=_heading(above, chunk.heading))
        numbers = exchange(parts, numbers.stop)


def exchange(parts: Sequence[Part], first: int) -> range:
    """The numbers of the parts that are cut as one text: `first` with the answers to it."""
    later = range(first + 1, len(parts))
    return range(first, next((n for n in later if parts[n].role != ASSISTANT), len(parts)))


def _heading(above: Iterable[str], heading: str) -> str:
    """`heading` below those of `above` that say more than it does."""
    words = set(split_words(heading))
    more = [one for one in above if not words.issuperset(split_words(one))]
    return HEADING_SEPARATOR.join(filter(None, (*more, heading)))
