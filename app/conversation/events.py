"""One conversation turn as data: the events that answer a question.

Events come in order: `Resumed`, `Retrieved` or `Interpolated`, `Dropped`, `Prefilling`, `Wrote`,
`Remarked`, `Finished`; in iterative retrieval, `Retrieved` and `Speculated` come between the
`Wrote`, too. Their text is raw model output and hostile until `app.sanitise` has cleaned it, which
is up to whoever displays it.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.conversation.statistics import Piece, Statistics
from app.indexing.passage_index import FoundPassage
from engines.budget.protocol import BudgetStatus
from engines.ralm.events import RalmStatistics
from engines.step import Step

MIN_PREFILL_TOKENS = 256
"""Progress is shown where at least so many tokens are read."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A stopped answer continues after `pieces`, which are all of its text so far."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Imported texts were searched; `passages` go before the question, none if none is relevant.

    In iterative retrieval it comes again, with all passages so far, whenever there is a new one and
    at the end.

    Attributes:
        unindexed: imported texts that could not be searched yet.
        requested: whether the chat or the question asks for them; else it need not be said that
            none is relevant.
        too_long: whether there are relevant ones, of which not even the best fits into the context.
    """

    passages: tuple[FoundPassage, ...]
    unindexed: int = 0
    requested: bool = True
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Speculated:
    """A stride of iterative retrieval was confirmed; `figures` are the answer's so far."""

    figures: RalmStatistics


@dataclass(frozen=True, slots=True)
class Interpolated:
    """The answer is worded like the imported texts, of which so many `states` are encoded.

    None are: the model answers alone. It comes again at the end, with the figures.
    """

    states: int
    figures: RalmStatistics | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """The context was full: the model no longer sees the oldest `messages` messages."""

    messages: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The prompt is being read: `done` of `total` tokens are in the KV cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """One forward pass produced text. Control tokens have none, so `pieces` may be empty."""

    pieces: tuple[Piece, ...]
    step: Step
    budget_status: BudgetStatus


@dataclass(frozen=True, slots=True)
class Remarked:
    """What the person should know of the answer, in a sentence; it comes before `Finished`."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer ended: `finish` is stop, length, context or interrupted.

    The same `seed`, settings and messages give the same answer again.
    """

    finish: str
    statistics: Statistics
    seed: int


Event = (
    Resumed
    | Retrieved
    | Speculated
    | Interpolated
    | Dropped
    | Prefilling
    | Wrote
    | Remarked
    | Finished
)
