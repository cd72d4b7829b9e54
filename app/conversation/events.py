"""."""

from __future__ import annotations

from dataclasses import dataclass

from app.conversation.statistics import Statistics
from engines.budget.status import BudgetStatus
from engines.step import Step


@dataclass(frozen=True, slots=True)
class Dropped:
    """The context was full: the oldest `messages` messages are no longer seen by the model."""

    messages: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The prompt is being read: `done` of `total` tokens stand in the KV cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer's text and the source bit its tokens are credited to (0: the model)."""

    text: str
    source: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """One forward pass brought text. Control tokens have no text, so `pieces` may be empty."""

    pieces: tuple[Piece, ...]
    step: Step
    outlook: BudgetStatus


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer ended: `finish` is stop, length, context or interrupted.

    The same `seed`, settings and messages give the same answer again.
    """

    finish: str
    statistics: Statistics
    seed: int


Event = Dropped | Prefilling | Wrote | Finished
