"""One conversation turn as data: the events that answer a question.

Events come in order: `Checking`, `Retrieved`, `Resumed`, `Interpolated`, `Dropped`, `Prefilling`,
`Wrote`, `Cited`, `Remarked`, `Finished`; in iterative retrieval, `Retrieved` and `Speculated` also
come between the `Wrote`. To a command, `Opened` comes before them and `Warned` before or after.
Their text is raw model output; whoever displays it passes it through `app.sanitise`.

Types of fields are imported for the type checker alone: a command that is answered by another
process needs no NumPy to read its events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.conversation.citations import SearchOutcome, Source
    from app.conversation.statistics import Piece, Statistics
    from app.indexing.passage_index import FoundPassage
    from engines.budget.protocol import BudgetStatus
    from engines.ralm.events import RalmStatistics
    from engines.step import Step

MIN_PREFILL_TOKENS = 256
"""Progress is shown for prefills of at least this many tokens."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The model `model` begins to answer a command; `restrictions` are what a person should know
    about it."""

    model: str
    restrictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """A command has to load the model itself; nothing follows. `reason` is for logs and tests."""

    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something failed that does not prevent the answer to a command."""

    text: str


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
    """KNN-LM uses a datastore of `states` entries from imported texts and the person's chats.

    Without any, the model answers alone. It comes again at the end, with the figures and the
    `sources` of the answer's words.
    """

    states: int
    figures: RalmStatistics | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """The context was full: the model no longer sees the oldest `messages` messages."""

    messages: int


@dataclass(frozen=True, slots=True)
class Checking:
    """Whether passage `number` of `total` states the answer is being checked."""

    number: int
    total: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The prompt is being read: `done` of `total` tokens are in the KV cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class WroteText:
    """The text of one step. Control tokens have none, so `pieces` may be empty."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Wrote(WroteText):
    """One step produced text; other processes get its text alone."""

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
    Opened
    | Declined
    | Warned
    | Resumed
    | Retrieved
    | Speculated
    | Interpolated
    | Dropped
    | Checking
    | Prefilling
    | WroteText
    | Wrote
    | Remarked
    | Cited
    | Finished
)
