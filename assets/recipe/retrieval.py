"""What retrieval shows of pages for one question: the items of their chunks that answer it best.

Owns how the recipe counts words where the program has an index. Which items are kept is the
program's business (`engines.retrieval.excerpts`), so that training sees what answering will.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from datastores.passages.chunks import Chunk, split
from datastores.passages.word_counts import keys_in
from engines.retrieval.excerpts import MIN_FIT, PassageExcerpt, excerpts
from engines.retrieval.protocol import QuestionModel
from engines.retrieval.question_likelihood import parse_question
from engines.retrieval.translations import TRANSLATIONS_FILE, Translations

QUESTION_MODEL_FILE = "question-model-f16.gguf"
ITEMS = 1
"""Kept of all chunks together in evaluation, as in the program: see README.md, "What retrieval
shows"."""


@cache
def translations() -> Translations:
    """The shipped ones."""
    return Translations.read(Path(__file__).parents[1] / TRANSLATIONS_FILE)


@cache
def question_model() -> QuestionModel:
    """The shipped one; chats for training are drawn without it, which is much faster."""
    from engines.llama.question_model import LlamaQuestionModel

    return LlamaQuestionModel(Path(__file__).parents[1] / QUESTION_MODEL_FILE)


class PageStatistics:
    """How common words are among the chunks of pages: `question_likelihood.WordStatistics`."""

    def __init__(self, pages: Iterable[str]) -> None:
        """Args:
        pages: in Markdown.
        """
        chunks = [chunk for page in pages for chunk in split(page)]
        keys = keys_in([f"{chunk.heading}\n{chunk.content}" for chunk in chunks])
        self._chunks, self._counts = len(chunks), Counter(chain(*keys))

    def __len__(self) -> int:
        """How many chunks there are."""
        return self._chunks

    def frequency(self, word: str) -> int:
        """How many chunks hold `word`."""
        (keys,) = keys_in([word])
        return min((self._counts[key] for key in keys), default=0)

    def excerpts(
        self,
        chunks: Sequence[Chunk],
        question: str,
        translations: Translations,
        items: int = ITEMS,
        least: float = MIN_FIT,
        model: QuestionModel | None = None,
    ) -> list[PassageExcerpt]:
        """What is kept of `chunks`, best first: so many items that fit so well."""
        asked = parse_question(question, translations, self, model)
        return excerpts(chunks, asked, items, least)
