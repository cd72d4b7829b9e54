"""What iterative retrieval yields, and its running totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datastores.passages.chunks import Passage
    from engines.step import Step


@dataclass(frozen=True, slots=True)
class ConfirmedStride:
    """A stride whose passage is known to be the best for its query.

    Attributes:
        passage: the one it was written under; None if no passage matched.
        steps: the steps confirmed with it, in order; a step that reaches beyond its end comes
            with a later stride.
        finish: why the answer ended with it; empty while generating.
    """

    passage: Passage | None
    steps: tuple[Step, ...]
    finish: str


@dataclass(slots=True)
class RalmStatistics:
    """Running totals of one answer. Times are in seconds.

    Attributes:
        strides: confirmed strides.
        changes: confirmed strides whose passage differs from the previous one's.
        searches: searches of the whole knowledge base.
        queries: their total number of queries.
        guesses: verified guesses.
        right: correct guesses.
        rollbacks: mispredictions that discarded tokens.
        discarded: tokens discarded by them.
        prefills, passes: see `StrideWriter`.
        generation_s: prefill and decoding.
        encoding_s: encoding of queries.
        lookup_s: ranking of the cache.
        search_s: searches of the whole knowledge base.
        waited_s: the part of `search_s` that was not overlapped with writing.
        wasted_s: writing of strides under mispredicted passages.
        batches: verified batches.
        stride_sum: their total number of strides.
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
        """Share of the verified guesses that were correct; 0 if none was verified."""
        return self.right / self.guesses if self.guesses else 0.0

    @property
    def stride(self) -> float:
        """Mean number of strides in a batch; 0 before the first batch."""
        return self.stride_sum / self.batches if self.batches else 0.0

    @property
    def saved_s(self) -> float:
        """Estimated time that speculation saved over one search before each stride.

        Negative if speculation cost time. A single search is assumed to take a query's share of a
        batch; it takes longer, so the estimate is conservative.
        """
        search_s = self.search_s / self.queries if self.queries else 0.0
        return self.strides * search_s - self.waited_s - self.wasted_s - self.lookup_s
