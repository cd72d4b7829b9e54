"""A scripted knowledge base and a target whose tokens depend on the passage before the prompt."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from datastores.passages.chunks import Chunk, Passage
from datastores.tokens import common_prefix
from engines.ralm.events import ConfirmedStride
from engines.ralm.knowledge_base import NO_MATCH, Query
from engines.retrieval.protocol import ScoredPassage
from engines.target import ForwardOutput
from tests.engines.scripted import VOCABULARY, ScriptedTarget

QUERY_TOKENS = 3
"""Few enough that the best passage changes sometimes."""


def passage(number: int) -> Passage:
    return Passage(number, bytes([number]), 0, Chunk("", 1, 1, f"passage {number}"))


class ScriptedBase:
    """Implements `KnowledgeBase`: scores are a hash of query and passage, coarse enough for ties.

    Args:
        matching: share of passages that match a query at all.
    """

    def __init__(self, size: int, *, matching: float = 1.0) -> None:
        self.size = size
        self.matching = matching
        self.batches: list[int] = []

    def encode(self, text: str, current: Passage | None) -> Query:
        return Query(text, current=current)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        self.batches.append(len(queries))
        return [self._search(query, limit) for query in queries]

    def _search(self, query: Query, limit: int) -> list[ScoredPassage]:
        scored = ((self._score(query, number), number) for number in range(self.size))
        ranked = sorted((-score, number) for score, number in scored if score != NO_MATCH)
        return [ScoredPassage(passage(number), -loss) for loss, number in ranked[:limit]]

    def score(self, query: Query, passages: Sequence[Passage]) -> list[float]:
        return [self._score(query, one.id) for one in passages]

    def _score(self, query: Query, number: int) -> float:
        drawn = random.Random(f"{query.text}/{number}")
        if drawn.random() >= self.matching:
            return NO_MATCH
        # So that guesses are right.
        favourite = 0.3 if number == sum(map(ord, query.text)) % 3 else 0.0
        lead = 0.1 if query.current is not None and number == query.current.id else 0.0
        return round(drawn.random() * 0.7 + favourite + lead, 1)


class PassageTarget(ScriptedTarget):
    """A target whose distribution depends on the first token (the passage's) and the last one."""

    def __init__(self, *, context_length: int = 512, chains_only: bool = False) -> None:
        super().__init__(context_length=context_length, chains_only=chains_only)
        self.parked: list[list[int]] = []
        self.prefilled: list[list[int]] = []

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        self.prefilled.append(list(tokens))
        yield from super().prefill(tokens)

    def park(self) -> None:
        self.parked.append(list(self.tokens))

    def drop_parked(self) -> None:
        self.parked.clear()

    def cached_prefix(self, tokens: Sequence[int]) -> int:
        return max(common_prefix(text, tokens) for text in (self.tokens, *self.parked))

    def _rows(self, suffixes: list[tuple[int, ...]]) -> ForwardOutput:
        first = self.tokens[0] if self.tokens else 0
        return super()._rows([(1000 + first, *suffix) for suffix in suffixes])


def prompt(passage: Passage | None) -> list[int]:
    """A prompt that begins with the passage's number; prompts differ in length."""
    number = VOCABULARY - 1 if passage is None else passage.id
    return [number, *[5] * (number % 7), 1, 2, 3]


def text(strides: Sequence[ConfirmedStride]) -> list[int]:
    return [token for stride in strides for step in stride.steps for token in step.tokens]


def query(tokens: Sequence[int]) -> str:
    return " ".join(str(token) for token in tokens[-QUERY_TOKENS:])
