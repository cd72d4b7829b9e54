"""What the budget says of itself after each step, for the screen and the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The budget's view of drafting at the present context length.

    Attributes:
        plain_seconds: wall time of one whole plain cycle (one row) at this context length.
        plain_measured: false while `plain_seconds` is only an estimate (shown with `~`).
        paused: whether drafting is not worth it just now.
        loss: while paused, by what share drafting would slow this step, e.g. 0.09; 0 where it is
            held back although it promises to pay (`engines.budget.loss_limit`).
        would_accept: while paused or not, hindsight: for each source name, the share of the
            answer's tokens so far that its proposals, verified or not, would have had accepted.
    """

    plain_seconds: float
    plain_measured: bool
    paused: bool
    loss: float
    would_accept: Mapping[str, float]
