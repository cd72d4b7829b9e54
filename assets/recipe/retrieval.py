"""What retrieval shows of pages for one question: the items of their chunks that answer it best.

Owns how the recipe counts words where the program has an index. Which items are kept is the
program's business (`datastores.passages.excerpts`), so that training sees what answering will.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from datastores.passages.associations import ASSOCIATIONS_FILE, Associations
from datastores.passages.chunks import Chunk, split
from datastores.passages.excerpts import PassageExcerpt, excerpts
from datastores.passages.question_words import (
    asked_words,
    inverse_document_frequency,
    words_of,
)
from datastores.passages.word_counts import keys_in

ITEMS = 1
"""Kept of all chunks together in evaluation, as in the program: see README.md, "What retrieval
shows"."""


@cache
def associations() -> Associations:
    """The shipped ones."""
    return Associations.read(Path(__file__).parents[1] / ASSOCIATIONS_FILE)


class PageStatistics:
    """How common words are among the chunks of pages: `question_words.WordStatistics`."""

    def __init__(self, pages: Iterable[str]) -> None:
        """Args:
        pages: in Markdown.
        """
        chunks = [chunk for page in pages for chunk in split(page)]
        keys = keys_in([f"{chunk.heading}\n{chunk.content}" for chunk in chunks])
        self._chunks, self._counts = len(chunks), Counter(chain(*keys))

    def frequency(self, word: str) -> int:
        """How many chunks hold `word`."""
        (keys,) = keys_in([word])
        return min((self._counts[key] for key in keys), default=0)

    def rarity(self, frequency: float) -> float:
        """What a word in so many chunks counts."""
        return inverse_document_frequency(frequency, self._chunks)

    def excerpts(
        self,
        chunks: Sequence[Chunk],
        question: str,
        associations: Associations,
        items: int = ITEMS,
    ) -> list[PassageExcerpt]:
        """What is kept of `chunks`, best first: so many items."""
        return excerpts(chunks, asked_words(words_of(question), associations, self), items)
