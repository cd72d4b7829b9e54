"""The knowledge bases of `bench ralm`: a person's texts among any number of random passages.

EDR and ADR need embeddings, whose quality this benchmark does not measure: a passage is encoded as
the normalised sum of a random vector for each of its words, so that what shares rare words is near.
Further random vectors make the corpus as large as one likes; each stands for one of the texts, is
searched like any other, and is rarely the best. For SR (BM25) they are passages of the texts' own
words, as frequent as there and in random order.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from math import log
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from datastores.errors import InputError
from datastores.passages.bm25 import informative_words
from datastores.passages.chunks import Chunk, split
from datastores.passages.exact import Vectors
from datastores.passages.protocol import Passage, ScoredPassage
from datastores.passages.store import PassageStore
from datastores.passages.vectors import VectorIndex
from datastores.passages.word_index import WordIndex
from engines.ralm.knowledge_base import KnowledgeBase, Query, TextKnowledgeBase

EXACT, APPROXIMATE, SPARSE = "edr", "adr", "sr"
RETRIEVERS = (EXACT, APPROXIMATE, SPARSE)
SUFFIXES = (".md", ".txt")
WIDTH = 384
"""Of the vectors: as many dimensions as those of small embedding models have."""
RANDOM_LENGTH = 0.4
"""Of the random vectors, where a passage's is 1: among a million of unit length, some would have an
inner product of √(2 ln N / WIDTH) = 0.27 with any query, more than many passages that match it."""
TEXT_PASSAGES = 1_000
"""Random passages that are stored as one text."""
BLOCK = 20_000
"""Random vectors that are drawn; further ones have their values with other signs."""

_WORD = re.compile(r"\w+")


class DenseKnowledgeBase:
    """Implements `KnowledgeBase` over vectors of words.

    Args:
        filler: number of random vectors beside those of `passages`.
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

    def encode(self, text: str) -> Query:
        """See `KnowledgeBase.encode`."""
        return Query(text, self._vector(" ".join(informative_words(text))))

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        """See `KnowledgeBase.search`."""
        vectors = np.stack([query.vector for query in queries if query.vector is not None])
        return [
            [ScoredPassage(self._passage(number), score) for number, score in ranked]
            for ranked in self._index.search(vectors, limit)
        ]

    def score(self, query: Query, passages: Sequence[int]) -> list[float]:
        """See `KnowledgeBase.score`."""
        assert query.vector is not None
        return self._index.score(query.vector, passages)

    def _passage(self, number: int) -> Passage:
        """The passage of a vector; a random one stands for one of the others."""
        own = self._passages[number % len(self._passages)]
        return Passage(number, own.text, own.part, own.chunk)

    def _vector(self, text: str) -> Vectors:
        rarest = max(self._rarity.values())
        total = np.zeros(WIDTH, np.float32)
        for word in _words(text):
            total += self._rarity.get(word, rarest) * _word_vector(word)
        unit: Vectors = total / np.float32(max(float(np.linalg.norm(total)), 1e-9))
        return unit


@contextmanager
def knowledge_base(
    texts: Path, retriever: str, size: int, reach: int
) -> Iterator[tuple[KnowledgeBase, int]]:
    """A knowledge base over the files in `texts`, and how many passages it ranks.

    Args:
        size: passages in all, if there are fewer in the texts.
        reach: most passages that are asked for at once.

    Raises:
        InputError: there are no files with text.
    """
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        store = PassageStore.open(Path(folder) / "passages.sqlite")
        scoring = PassageStore(store.store.new_connection())
        try:
            passages = _fill(store, texts)
            if retriever == SPARSE:
                _fill_with_random(store, passages, size - len(passages))
                words = WordIndex(scoring)
                words.update()
                yield TextKnowledgeBase(words), len(words)
            else:
                base = DenseKnowledgeBase(
                    passages,
                    max(size - len(passages), 0),
                    approximate=retriever == APPROXIMATE,
                    reach=reach,
                )
                yield base, len(base)
        finally:
            scoring.close()
            store.close()


def _fill(store: PassageStore, texts: Path) -> list[Passage]:
    """Cut every file under `texts` into passages and store them."""
    files = sorted(path for path in texts.rglob("*") if path.suffix in SUFFIXES)
    passages: list[Passage] = []
    for path in files:
        try:
            content = path.read_text("utf-8", "replace")
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        key = hashlib.sha256(str(path).encode()).digest()
        chunks = list(split(content))
        store.add(key, ((0, chunk) for chunk in chunks))
        passages += [Passage(len(passages) + at, key, 0, one) for at, one in enumerate(chunks)]
    if not passages:
        raise InputError(f"{texts} holds no text: name a folder with {' or '.join(SUFFIXES)} files")
    return passages


def _fill_with_random(store: PassageStore, passages: Sequence[Passage], count: int) -> None:
    """Store `count` passages of random words of `passages`, drawn as often as one of them has.

    A word counts once, so that a passage about it is better in most cases.
    """
    contents = [one.chunk.content.split() for one in passages]
    counts = Counter(word for words in contents for word in words)
    words, frequencies = list(counts), list(accumulate(counts.values()))
    random = Random(0)
    for start in range(0, count, TEXT_PASSAGES):
        lengths = (len(random.choice(contents)) for _ in range(min(TEXT_PASSAGES, count - start)))
        drawn = (random.choices(words, cum_weights=frequencies, k=length) for length in lengths)
        chunks = ((0, Chunk("", 1, 1, " ".join(dict.fromkeys(text)))) for text in drawn)
        store.add(hashlib.sha256(f"random {start}".encode()).digest(), chunks)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


@lru_cache(maxsize=1 << 16)
def _word_vector(word: str) -> Vectors:
    """float32 [WIDTH], drawn from the word itself."""
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


def _fill_randomly(vectors: Vectors) -> None:
    """Make all rows random vectors of one length: some, with other signs in each block."""
    random = np.random.default_rng(0)
    drawn = random.standard_normal((min(BLOCK, len(vectors)), WIDTH), np.float32)
    drawn *= RANDOM_LENGTH / np.linalg.norm(drawn, axis=1, keepdims=True)
    for start in range(0, len(vectors), BLOCK):
        signs = random.choice(np.array([-1, 1], np.float32), WIDTH)
        block = vectors[start : start + BLOCK]
        np.multiply(drawn[: len(block)], signs, out=block)
