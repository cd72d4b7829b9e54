"""What iterative retrieval yields, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from datastores.passages.chunks import Passage
from engines.step import Step


@dataclass(frozen=True, slots=True)
class ConfirmedStride:
    """A stride whose passage is known to be the best for its query.

    Attributes:
        passage: it was written under; None if no passage matched.
        steps: that are confirmed by it, in order; a step that goes beyond its end comes with a
            later one.
        finish: why the answer ended with it; empty while it goes on.
    """

    passage: Passage | None
    steps: tuple[Step, ...]
    finish: str


@dataclass(slots=True)
class RalmStatistics:
    """Running totals of one answer.

    Attributes:
        strides: confirmed; changes: those whose passage is not the one before's.
        searches: of the whole knowledge base; queries: in them.
        guesses: that were compared with the truth; right: those that were right.
        rollbacks: wrong guesses that tokens were taken back for; discarded: those tokens.
        prefills, passes: see `StrideWriter`.
        generation_s: spent prefilling and decoding; encoding_s: encoding queries; lookup_s: ranking
            the cache; search_s: searching the whole base; waited_s: of that, while nothing else
            was done; wasted_s: writing strides under passages that were guessed wrong.
        batches: verified; stride_sum: of their sizes.
    """

    strides: int = 0
    changes: int = 0
    searches: int = 0
    queries: int = 0
    guesses: int = 0
    right: int = 0
    rollbacks: int = 0
    discarded: int = 0
    prefills: int = 0
    passes: int = 0
    generation_s: float = 0.0
    encoding_s: float = 0.0
    lookup_s: float = 0.0
    search_s: float = 0.0
    waited_s: float = 0.0
    wasted_s: float = 0.0
    batches: int = 0
    stride_sum: int = 0

    @property
    def accuracy(self) -> float:
        """Share of the verified guesses that were right; 0 if none was verified."""
        return self.right / self.guesses if self.guesses else 0.0

    @property
    def stride(self) -> float:
        """Strides verified at once, on average; 0 before the first batch."""
        return self.stride_sum / self.batches if self.batches else 0.0

    @property
    def saved_s(self) -> float:
        """Estimate of the time that speculation saved over one search before each stride.

        Such a search is taken to be as long as a query's share of the batches: it is longer. So
        this is rather too little. Negative if speculation cost time.
        """
        search_s = self.search_s / self.queries if self.queries else 0.0
        return self.strides * search_s - self.waited_s - self.wasted_s - self.lookup_s
