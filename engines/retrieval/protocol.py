"""The retriever protocol.

It is implemented by `bm25` (words) and `dense` (vectors; exact or approximate). Each answers a
batch of queries at once and scores a given subset with the same metric, as a speculative cache
needs (RaLMSpec, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from datastores.passages.chunks import Passage


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """A passage and its score for a query; higher is better."""

    passage: Passage
    score: float


class QuestionModel(Protocol):
    """A language model of questions, conditioned on a text that answers them."""

    def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
        """The natural log-likelihood of `question` given each of `texts`.

        Raises:
            ModelError: the model cannot evaluate them.
        """
        ...


class Retriever(Protocol):
    """Ranks the passages of one store."""

    def search(self, queries: Sequence[str], limit: int) -> list[list[ScoredPassage]]:
        """For each query the best `limit` passages, best first, ties by id; all if it is -1."""
        ...

    def score(self, queries: Sequence[str], passages: Sequence[int]) -> list[list[float]]:
        """For each query the score of each of `passages` (ids); 0.0 if it does not match.

        The statistics are the whole store's, so scores compare with those of `search`.
        """
        ...
