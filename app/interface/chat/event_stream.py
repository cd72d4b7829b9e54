"""Carries the events of an answer from the model's thread to the screen, at a bounded cost.

`EventQueue` is the only state that both threads touch. `RedrawThrottle` spaces batches so that
drawing takes a small share of the processor: events come hundreds of times a second.
`EventApplier` owns what each event means in the answer, the panel and the top bar. `EventStream`
connects them for one answer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic, perf_counter, thread_time
from typing import Protocol

from app.conversation.citations import citation, why_none
from app.conversation.events import (
    MIN_PREFILL_TOKENS,
    Dropped,
    Event,
    Finished,
    Interpolated,
    Prefilling,
    Remarked,
    Resumed,
    Retrieved,
    Wrote,
)
from app.conversation.session_statistics import SessionStatistics
from app.conversation.statistics import Piece
from app.interface.transcript.answer import GROWING, Answer
from app.models.description import percent
from datastores.chats.records import INTERRUPTED

MAX_CPU_SHARE = 0.035
"""Share of one core that drawing may take."""

MIN_PAUSE_S = 1 / 25
MAX_PAUSE_S = 1 / 3
"""Bounds of the time between two batches."""


class EventQueue:
    """Events on their way. `put` may be called from any thread, `take` from one."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` is called, on the thread of `put`, when there is something to take again."""
        self._wake = wake
        self._lock = Lock()
        self._events: list[Event] = []

    def put(self, event: Event) -> None:
        """Append one event."""
        with self._lock:
            self._events.append(event)
            first = len(self._events) == 1
        if first:
            self._wake()

    def take(self) -> list[Event]:
        """All events that are waiting, oldest first."""
        with self._lock:
            events, self._events = self._events, []
        return events


class RedrawThrottle:
    """Spaces batches by the processor time that drawing the last one took."""

    def __init__(self) -> None:
        self._drawn = float("-inf")
        self._used = 0.0

    def drew(self, clock: float, used: float) -> None:
        """A batch is drawn now; `used` is the processor time of this thread so far, in seconds."""
        self._drawn, self._used = clock, used

    def wait(self, clock: float, used: float) -> float:
        """Seconds to wait for the next batch; 0 where it is due."""
        pause = min(max((used - self._used) / MAX_CPU_SHARE, MIN_PAUSE_S), MAX_PAUSE_S)
        return max(0.0, self._drawn + pause - clock)


PANEL_INTERVAL_S = 0.5
"""Seconds between two redraws of the panel; faster changes cannot be read."""


class EventApplier:
    """Applies batches of events.

    Attributes:
        state: what the model is doing, in a word or two.
    """

    def __init__(self, session_statistics: SessionStatistics, redraw: Callable[[], object]) -> None:
        """`redraw` draws the panel again."""
        self.state = ""
        self._session_statistics = session_statistics
        self._redraw = redraw
        self._redrawn = float("-inf")

    def show(self, events: Sequence[Event], answer: Answer) -> None:
        """Apply a batch to `answer`."""
        now = monotonic()
        pieces: list[Piece] = []
        seconds: list[float] = []
        for event in events:
            self._session_statistics.observe(event, now)
            if isinstance(event, Wrote):
                pieces.extend(event.pieces)
                each = event.step.timings.total / max(1, len(event.pieces))
                seconds.extend(each for _ in event.pieces)
            else:
                self._note(event, answer)
        if pieces:
            answer.append_fragment(pieces, seconds)
            self.state = "thinking…" if answer.parts.thinking else "writing"
        if finished := next((event for event in events if isinstance(event, Finished)), None):
            self.end(answer, finished.finish)
        elif now - self._redrawn >= PANEL_INTERVAL_S:
            self._redrawn = now
            self._redraw()

    def end(self, answer: Answer, finish: str) -> None:
        """End `answer`."""
        answer.end(finish)
        self._session_statistics.end()
        self.state = ""
        self._redraw()

    def _note(self, event: Event, answer: Answer) -> None:
        if isinstance(event, Resumed):
            answer.resume(event.pieces)
        elif isinstance(event, Retrieved):
            answer.cite([citation(passage) for passage in event.passages])
            answer.why_none = why_none(requested=event.requested, too_long=event.too_long)
            if event.unindexed:
                texts = f"{event.unindexed:,} imported file{'s' * (event.unindexed != 1)}"
                answer.note = f"Not searched yet: {texts}, still being indexed"
        elif isinstance(event, Interpolated):
            answer.states = event.states
        elif isinstance(event, Remarked):
            answer.remark = event.text
        elif isinstance(event, Dropped):
            answer.note = (
                f"Context full: the model no longer sees the first {event.messages} messages"
            )
        elif isinstance(event, Prefilling) and event.total >= MIN_PREFILL_TOKENS:
            share = percent(event.done / event.total)
            self.state = f"reading {share}"
            answer.status = f"reading {event.done:,} of {event.total:,} tokens…"


class StreamView(Protocol):
    """What the event stream needs of the widget it draws on."""

    def grown(self, answer: Answer, state: str) -> None:
        """Draw `answer`, which has grown; the model is at `state`, which may be empty."""
        ...

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in so many seconds."""
        ...

    def redraw_panel(self) -> None:
        """Draw the panel again."""
        ...


class EventStream:
    """Shows the events of one answer at a time.

    Attributes:
        queue: where the model's thread puts its events.
    """

    def __init__(
        self, screen: StreamView, session_statistics: SessionStatistics, wake: Callable[[], object]
    ) -> None:
        """`wake` is called on the model's thread when `arrived` has to be."""
        self.queue = EventQueue(wake)
        self._screen = screen
        self._applier = EventApplier(session_statistics, screen.redraw_panel)
        self._throttle = RedrawThrottle()
        self._answer: Answer | None = None
        self._waiting = False

    def begin(self, answer: Answer) -> None:
        """Show events in `answer` from now on."""
        self._answer = answer

    def arrived(self) -> None:
        """Draw the queued events, now or as soon as the throttle allows."""
        if self._waiting or self._answer is None:
            return
        wait = self._throttle.wait(perf_counter(), thread_time())
        if wait > 0:
            self._waiting = True
            self._screen.later(wait, self._wait_is_over)
        else:
            self._draw(self._answer)

    def end(self, finish: str = INTERRUPTED) -> None:
        """Draw the rest; `finish` is how an unfinished answer ended."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        self._draw(answer)
        if answer.finish == GROWING:
            self._applier.end(answer, finish)
            self._screen.grown(answer, "")

    def _wait_is_over(self) -> None:
        self._waiting = False
        self.arrived()

    def _draw(self, answer: Answer) -> None:
        self._throttle.drew(perf_counter(), thread_time())
        self._applier.show(self.queue.take(), answer)
        self._screen.grown(answer, self._applier.state)
