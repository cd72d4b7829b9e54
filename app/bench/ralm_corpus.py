"""The knowledge bases of `bench ralm`: texts as answers search them (`PRODUCT`), or among random
passages in any number.

Random passages make the corpus, and so the ratio r of search time to writing time, as large as one
likes. Each stands for one of the texts, is searched like any other, and is rarely the best.

EDR and ADR need embeddings, whose quality this benchmark does not measure: a passage is encoded as
the normalised sum of a random vector for each of its words, so that texts that share rare words are
near each other. Random passages are random vectors. For SR (BM25) they hold the texts' own words,
drawn independently, each as frequent as in the texts.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from math import log
from pathlib import Path

import numpy as np

from app.bench.docs import indexed
from app.bench.inverted_index import Integers, InvertedIndex, Segment, count_words
from app.config import Options
from app.conversation.imported_texts import ImportedTexts
from app.indexing.passage_index import open_passages
from app.locations import locate
from datastores.errors import InputError
from datastores.passages.chunks import Passage, split
from datastores.passages.embeddings import Encoding, Vectors
from engines.ralm.knowledge_base import KnowledgeBase, Query, TextKnowledgeBase
from engines.retrieval.bm25 import CONTENT_WEIGHT
from engines.retrieval.protocol import ScoredPassage
from engines.retrieval.question_words import informative_words
from engines.retrieval.vectors import VectorIndex

EXACT, APPROXIMATE, SPARSE, PRODUCT = "edr", "adr", "sr", "product"
RETRIEVERS = (EXACT, APPROXIMATE, SPARSE, PRODUCT)
SUFFIXES = (".md", ".txt")
WIDTH = 384
"""Dimensions of the vectors, as in small embedding models."""
RANDOM_LENGTH = 0.4
"""Length of the random vectors; those of passages have 1. Among a million of unit length, some
would have an inner product of √(2 ln N / WIDTH) = 0.27 with any query, more than many passages that
match it."""
RANDOM_COUNT = 0.25
"""Count of a word in a random passage, for the same reason: of a million with whole words, some
would hold as many rare words of a query as the passages that are about them."""
BLOCK = 20_000
"""Random vectors that are drawn; further ones repeat their values with other signs."""

_WORD = re.compile(r"\w+")


class DenseKnowledgeBase:
    """Implements `KnowledgeBase` over vectors of words.

    Args:
        filler: number of additional random vectors.
        reach: most passages that an approximate search returns.
    """

    def __init__(
        self, passages: Sequence[Passage], filler: int, *, approximate: bool, reach: int
    ) -> None:
        self._passages = passages
        texts = [one.chunk.heading + " " + one.chunk.content for one in passages]
        counts = Counter(word for text in texts for word in set(_words(text)))
        self._rarity = {word: log(1 + len(texts) / number) for word, number in counts.items()}
        vectors = np.empty((len(texts) + filler, WIDTH), np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(text)
        _fill_randomly(vectors[len(texts) :])
        self._index = VectorIndex(
            vectors, range(len(vectors)), approximate=approximate, reach=reach
        )

    def __len__(self) -> int:
        return len(self._index)

    def encode(self, text: str, current: Passage | None) -> Query:
        """See `KnowledgeBase.encode`; no preference for `current`."""
        vector = self._vector(" ".join(informative_words(text)))
        return Query(text, Encoding(vector, np.empty((0, WIDTH), np.float32)))

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        vectors = np.stack([query.encoding.vector for query in queries if query.encoding])
        return [
            [ScoredPassage(passage(self._passages, number), score) for number, score in ranked]
            for ranked in self._index.search(vectors, limit)
        ]

    def score(self, query: Query, passages: Sequence[Passage]) -> list[float]:
        """See `KnowledgeBase.score`."""
        assert query.encoding is not None
        return self._index.score(query.encoding.vector, [one.id for one in passages])

    def _vector(self, text: str) -> Vectors:
        rarest = max(self._rarity.values())
        total = np.zeros(WIDTH, np.float32)
        # "!!!!" has no words, but gets a direction: for the zero vector all passages would tie.
        for word in _words(text) or [""]:
            total += self._rarity.get(word, rarest) * _word_vector(word)
        unit: Vectors = total / np.float32(max(float(np.linalg.norm(total)), 1e-9))
        return unit


class SparseRetriever:
    """Implements `engines.retrieval.protocol.Retriever` in memory.

    Args:
        filler: number of additional passages of random words.
    """

    def __init__(self, passages: Sequence[Passage], filler: int) -> None:
        self._passages = passages
        words, lengths = count_words([(one.chunk.heading, one.chunk.content) for one in passages])
        segments = [words]
        if filler > 0:
            segment, more = _random_words(words, len(passages), filler)
            segments, lengths = [words, segment], np.concatenate([lengths, more])
        self._index = InvertedIndex(segments, lengths)

    def __len__(self) -> int:
        return len(self._index)

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """See `Retriever.search`."""
        return [
            [ScoredPassage(passage(self._passages, number), score) for number, score in ranked]
            for ranked in self._index.search(queries, limit)
        ]

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """See `Retriever.score`."""
        return self._index.score(queries, passages)


def passage(passages: Sequence[Passage], number: int) -> Passage:
    """The passage of a number; a random one stands for one of `passages`."""
    own = passages[number % len(passages)]
    return Passage(number, own.text, own.part, own.chunk)


@contextmanager
def product_base(options: Options, texts: Path) -> Iterator[tuple[KnowledgeBase, int]]:
    """The knowledge base of answers over the folder `texts`, imported and indexed, and how many
    passages it ranks.

    Raises:
        InputError: there is nothing to import.
    """
    with (
        indexed(options, locate(options.data_dir), texts, ()) as locations,
        closing(ImportedTexts.open(locations)) as imports,
        closing(open_passages(locations)) as passages,
    ):
        yield imports.knowledge_base(), len(passages)


def knowledge_base(texts: Path, retriever: str, size: int, reach: int) -> tuple[KnowledgeBase, int]:
    """A knowledge base over the files in `texts`, and how many passages it ranks.

    Args:
        size: passages in all, if there are fewer in the texts.
        reach: most passages that are asked for at once.

    Raises:
        InputError: there are no files with text.
    """
    passages = _split(read_texts(texts))
    filler = max(size - len(passages), 0)
    if retriever == SPARSE:
        sparse = SparseRetriever(passages, filler)
        return TextKnowledgeBase(sparse), len(sparse)
    dense = DenseKnowledgeBase(passages, filler, approximate=retriever == APPROXIMATE, reach=reach)
    return dense, len(dense)


def read_texts(folder: Path) -> dict[Path, str]:
    """The contents of the files under `folder`, by path.

    Raises:
        InputError: there are no files with text, or one cannot be read.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    texts: dict[Path, str] = {}
    for path in files:
        try:
            texts[path] = path.read_text("utf-8", "replace")
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not any(map(str.strip, texts.values())):
        raise InputError(
            f"{folder} holds no text: name a folder with {' or '.join(SUFFIXES)} files"
        )
    return texts


def _split(texts: Mapping[Path, str]) -> list[Passage]:
    """The passages of every text."""
    passages: list[Passage] = []
    for path, content in texts.items():
        key = hashlib.sha256(str(path).encode()).digest()
        passages += [
            Passage(number, key, 0, chunk)
            for number, chunk in enumerate(split(content), len(passages))
        ]
    return passages


def _random_words(words: Segment, passages: int, count: int) -> tuple[Segment, Integers]:
    """The words of `count` random passages, numbered after the `passages` of `words`, and how many
    each has.

    Every word is in the same share of them as of `words`.
    """
    random = np.random.default_rng(0)
    rows = []
    for number in random.binomial(count, np.diff(words.starts) / passages).tolist():
        # Few are drawn with repetition, which hardly occurs; of many, each row has its chance.
        rare = number * 100 < count
        drawn = random.integers(0, count, number) if rare else random.random(count) * count < number
        rows.append(np.unique(drawn) if rare else np.flatnonzero(drawn))
    starts = np.cumsum([0, *map(len, rows)])
    held = np.concatenate(rows).astype(np.int32)
    counts = np.full(len(held), CONTENT_WEIGHT * RANDOM_COUNT, np.float32)
    segment = Segment(words.keys, starts, held + np.int32(passages), counts)
    return segment, np.bincount(held, minlength=count).astype(np.int64)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


@lru_cache(maxsize=1 << 16)
def _word_vector(word: str) -> Vectors:
    """float32 [WIDTH], drawn from the word itself."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


def _fill_randomly(vectors: Vectors) -> None:
    """Make all rows random vectors of one length: those of the first block, with other signs."""
    random = np.random.default_rng(0)
    drawn = random.standard_normal((min(BLOCK, len(vectors)), WIDTH), np.float32)
    drawn *= RANDOM_LENGTH / np.linalg.norm(drawn, axis=1, keepdims=True)
    for start in range(0, len(vectors), BLOCK):
        signs = random.choice(np.array([-1, 1], np.float32), WIDTH)
        block = vectors[start : start + BLOCK]
        np.multiply(drawn[: len(block)], signs, out=block)
