"""What retrieval shows of pages for one question: the best items of their chunks.

The recipe counts words where the program has an index. The program's own code
(`engines.retrieval.excerpts`) chooses the items, so training sees what the program will show.
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
"""Items kept of all chunks together in evaluation, as in the program; see README.md, "What
retrieval shows"."""


@cache
def translations() -> Translations:
    """The shipped word translations."""
    return Translations.read(Path(__file__).parents[1] / TRANSLATIONS_FILE)


@cache
def question_model() -> QuestionModel:
    """The shipped model of questions; training chats are drawn without it, which is much faster."""
    from engines.llama.question_model import LlamaQuestionModel

    return LlamaQuestionModel(Path(__file__).parents[1] / QUESTION_MODEL_FILE)


class PageStatistics:
    """How many chunks of pages hold a word; a `question_likelihood.WordStatistics`."""

    def __init__(self, pages: Iterable[str]) -> None:
        """Args:
        pages: in Markdown.
        """
        chunks = [chunk for page in pages for chunk in split(page)]
        keys = keys_in([f"{chunk.heading}\n{chunk.content}" for chunk in chunks])
        self._chunks, self._counts = len(chunks), Counter(chain(*keys))

    def __len__(self) -> int:
        """Number of chunks."""
        return self._chunks

    def frequency(self, word: str) -> int:
        """Number of chunks that hold `word`."""
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
        """The best `items` of `chunks` with a fit of at least `least`, best first."""
        asked = parse_question(question, translations, self, model)
        return excerpts(chunks, asked, items, least)
