"""One conversation turn as data: the events that answer a question.

Events come in order: `Resumed`, `Retrieved` or `Interpolated`, `Dropped`, `Prefilling`, `Wrote`,
`Cited`, `Remarked`, `Finished`; in iterative retrieval, `Retrieved` and `Speculated` also come
between the `Wrote`. Their text is raw model output; whoever displays it passes it through
`app.sanitise`.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.conversation.citations import SearchOutcome
from app.conversation.statistics import Piece, Statistics
from app.indexing.passage_index import FoundPassage
from engines.budget.protocol import BudgetStatus
from engines.ralm.events import RalmStatistics
from engines.step import Step

MIN_PREFILL_TOKENS = 256
"""Progress is shown for prefills of at least this many tokens."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A stopped answer continues after `pieces`, which are all of its text so far."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Imported texts were searched; `passages` go before the question.

    In iterative retrieval it comes again, with all passages so far, for every new one and at the
    end.

    Attributes:
        outcome: what else the search brought; None if that is unchanged.
    """

    passages: tuple[FoundPassage, ...]
    outcome: SearchOutcome | None = None


@dataclass(frozen=True, slots=True)
class Cited:
    """The answer used these of the passages retrieved; it comes before `Finished`."""

    passages: tuple[FoundPassage, ...]
    outcome: SearchOutcome


@dataclass(frozen=True, slots=True)
class Speculated:
    """A stride of iterative retrieval was confirmed; `figures` are the answer's so far."""

    figures: RalmStatistics


@dataclass(frozen=True, slots=True)
class Interpolated:
    """KNN-LM uses a datastore of `states` entries from the imported texts.

    Without any, the model answers alone. It comes again at the end, with the figures.
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
    """One step produced text. Control tokens have none, so `pieces` may be empty."""

    pieces: tuple[Piece, ...]
    step: Step
    budget_status: BudgetStatus


@dataclass(frozen=True, slots=True)
class Remarked:
    """A sentence about the answer for the person; it comes before `Finished`."""

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
    | Cited
    | Finished
)
