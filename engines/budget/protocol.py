"""The budget protocol: an observer of steps that decides what the next forward pass verifies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.draft_tree import DraftTree
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, StepObserver
from engines.target import Target

Draft = tuple[DraftTree, tuple[Proposal, ...]]
"""The tree to verify, and everything that was proposed."""


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The cost of plain decoding, for the screen and the statistics.

    Attributes:
        plain_seconds: wall time of one whole plain step (one row) at a context length.
        plain_measured: false while `plain_seconds` is only an estimate (shown with `~`).
    """

    plain_seconds: float
    plain_measured: bool


class Budget(StepObserver, Protocol):
    """Decides what each forward pass verifies."""

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """The tree to verify, at most `room` rows, the root included."""

    def top_tokens_needed(self, drafters: Sequence[Drafter]) -> int:
        """How many of the most probable tokens drafters learn from, which the loop keeps."""

    def status(self, length: int) -> BudgetStatus:
        """The cost of plain decoding at context length `length`."""
