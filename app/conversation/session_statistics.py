"""Figures of the session for the acceptance panel: what drafting gains, per answer and in total.

An observer of events that reads no clock: steps report their times, and the time of an event is
passed in. The figures of a single answer are those of `Statistics`, so the panel and `ask --json`
agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from app.conversation.events import Event, Finished, Speculated, Wrote
from app.conversation.statistics import Statistics
from engines.budget.protocol import BudgetStatus
from engines.draft_tree import ORIGIN_NAMES
from engines.ralm.events import RalmStatistics
from engines.step import Step

RECENT_SECONDS = 2.5
"""Decoding time over which the current speed is averaged while an answer is generated."""
TREND_SECONDS = 300.0
TREND_BUCKETS = 10
"""Time span of the trend, and the number of intervals in it."""


@dataclass(slots=True)
class Throughput:
    """Tokens, their time, and the estimated time of plain decoding.

    Attributes:
        plain_steps, undrafted_seconds: number and time of the steps without a draft.
    """

    tokens: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    steps: int = 0
    plain_steps: int = 0
    undrafted_seconds: float = 0.0

    def add(self, other: Throughput, sign: int = 1) -> None:
        """Add the figures of `other`, or subtract them with `sign` -1."""
        for name in Throughput.__slots__:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))

    @property
    def speed(self) -> float:
        """Tokens per second; 0 before the first."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def plain_speed(self) -> float:
        """Tokens per second of plain decoding at the same positions; 0 while unknown."""
        return self.tokens / self.plain_seconds if self.plain_seconds else 0.0

    @property
    def ratio(self) -> float:
        """Speed relative to plain decoding; 0 while unknown."""
        return self.plain_seconds / self.seconds if self.seconds else 0.0

    @property
    def drafted_ratio(self) -> float:
        """Seconds per token of steps with drafts, relative to the mean step without; 0 while
        unknown.

        `ratio` compares with the median step, which leaves out interruptions.
        """
        tokens, plain = self.tokens - self.plain_steps, self.undrafted_seconds
        drafted = self.seconds - plain
        return drafted * self.plain_steps / (tokens * plain) if tokens and plain else 0.0


@dataclass(slots=True)
class TrendBucket:
    """Steps and their tokens in interval `number`, counted from the clock's zero."""

    number: int
    steps: int = 0
    tokens: int = 0


@dataclass(slots=True)
class SessionStatistics:
    """Running figures of a session.

    Attributes:
        answers: answers with at least one token.
        writing: whether an answer is being generated.
        answer: the statistics of the current answer, or else of the last one.
        throughput: of `answer`.
        session: of all answers.
        session_tokens: tokens of all answers, those from prefill included.
        draft_seconds: time spent in drafters and budget for the answer.
        retrieval: figures of iterative retrieval in the answer, if any.
        budget_status: after the last step.
        dense_states: states in the dense index; None if there is no index.
        draft_model: name of the draft model; empty for none.
        draft_model_version: 0 for the untrained one.
        learned_share: progress of the current training; None without one.
        learning_waits: what the next training waits for, if anything.
    """

    answers: int = 0
    writing: bool = False
    answer: Statistics = field(default_factory=Statistics)
    throughput: Throughput = field(default_factory=Throughput)
    session: Throughput = field(default_factory=Throughput)
    session_tokens: int = 0
    draft_seconds: float = 0.0
    retrieval: RalmStatistics | None = None
    budget_status: BudgetStatus | None = None
    dense_states: int | None = None
    draft_model: str = ""
    draft_model_version: int = 0
    learned_share: float | None = None
    learning_waits: str = ""
    _recent: Throughput = field(default_factory=Throughput)
    _steps: deque[Throughput] = field(default_factory=deque)
    _buckets: deque[TrendBucket] = field(default_factory=lambda: deque(maxlen=TREND_BUCKETS))

    def observe(self, event: Event, time: float) -> None:
        """Count one event at `time`, in seconds of any monotonic clock."""
        if isinstance(event, Wrote):
            self._wrote(event, time)
        elif isinstance(event, Speculated):
            self.retrieval = event.figures
        elif isinstance(event, Finished):
            self.end()
            if event.statistics.tokens:
                self.answer = event.statistics

    def end(self) -> None:
        """End the answer; its figures stay until the next one begins."""
        self.writing = False

    def reset(self) -> None:
        """Start over, for another model."""
        fresh = SessionStatistics()
        for entry in fields(self):
            setattr(self, entry.name, getattr(fresh, entry.name))

    @property
    def current(self) -> Throughput:
        """The throughput of the last seconds of a running answer, else of the whole answer."""
        return self._recent if self.writing else self.throughput

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the answer's tokens by origin name; the rest are the target's own."""
        return self._shares(self.answer.by_origin)

    @property
    def possible(self) -> Mapping[str, float]:
        """The same shares if every proposed draft had been verified."""
        return self._shares(self.answer.possible_by_origin)

    def _shares(self, counts: Mapping[str, int]) -> dict[str, float]:
        total = self.answer.tokens
        return {name: counts[name] / total for name in ORIGIN_NAMES.values() if counts.get(name)}

    @property
    def saved_seconds(self) -> float:
        """Time that drafting saved in this session; negative if it cost time."""
        return self.session.plain_seconds - self.session.seconds

    def trend(self) -> list[float]:
        """Tokens per step over the last five minutes up to the latest step; 0 for no steps."""
        values = [0.0] * TREND_BUCKETS
        for bucket in self._buckets:
            age = self._buckets[-1].number - bucket.number
            if age < TREND_BUCKETS:
                values[-1 - age] = bucket.tokens / bucket.steps
        return values

    def _wrote(self, event: Wrote, time: float) -> None:
        if not self.writing:
            self._begin()
        self.answer.observe(event.step)
        self.session_tokens += len(event.step.tokens)
        self.budget_status = event.budget_status
        if not event.step.prefill:
            self._count(event.step, event.budget_status, time)

    def _begin(self) -> None:
        self.writing = True
        self.answers += 1
        self.answer, self.throughput = Statistics(), Throughput()
        self.draft_seconds = 0.0
        self.retrieval = None
        self._recent = Throughput()
        self._steps.clear()

    def _count(self, step: Step, budget_status: BudgetStatus, time: float) -> None:
        tokens, seconds = len(step.tokens), step.timings.total
        plain_seconds = self.answer.compare(step, budget_status)
        undrafted = not step.drafted
        counts = Throughput(tokens, seconds, plain_seconds, 1, int(undrafted), seconds * undrafted)
        for total in (self.throughput, self.session, self._recent):
            total.add(counts)
        self._steps.append(counts)
        while len(self._steps) > 1 and self._recent.seconds > RECENT_SECONDS:
            self._recent.add(self._steps.popleft(), -1)
        self.draft_seconds += step.timings.draft
        self._add_to_trend(int(time / TREND_SECONDS * TREND_BUCKETS), tokens)

    def _add_to_trend(self, number: int, tokens: int) -> None:
        """Count one step."""
        if not self._buckets or self._buckets[-1].number != number:
            self._buckets.append(TrendBucket(number))
        self._buckets[-1].steps += 1
        self._buckets[-1].tokens += tokens
