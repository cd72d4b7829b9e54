"""Carries the events of an answer from the model's thread to the screen, at a bounded cost.

Events come hundreds of times a second: `EventQueue` collects them from the model's thread,
`RedrawThrottle` spaces the batches, `EventApplier` applies a batch to answer, panel and top bar,
and `EventStream` connects the three for one answer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic, perf_counter, thread_time
from typing import Protocol

from app.conversation.citations import citation
from app.conversation.events import (
    MIN_PREFILL_TOKENS,
    Checking,
    Cited,
    Dropped,
    Event,
    Finished,
    Interpolated,
    Prefilling,
    Remarked,
    Resumed,
    Wrote,
)
from app.conversation.session_statistics import SessionStatistics
from app.conversation.statistics import Piece
from app.figures import percent
from app.interface.transcript.answer import GROWING, Answer
from datastores.chats.records import INTERRUPTED

MAX_CPU_SHARE = 0.035
"""Share of one core that drawing may take."""

MIN_PAUSE_S = 1 / 25
MAX_PAUSE_S = 1 / 3
"""Bounds of the time between two batches, in seconds."""


class EventQueue:
    """Events on their way; `put` may be called from any thread, `take` from one."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` is called on the thread of `put` when the queue is no longer empty."""
        self._wake = wake
        self._lock = Lock()
        self._events: list[Event] = []

    def put(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            first = len(self._events) == 1
        if first:
            self._wake()

    def take(self) -> list[Event]:
        """Remove and return all events, oldest first."""
        with self._lock:
            events, self._events = self._events, []
        return events


class RedrawThrottle:
    """Spaces batches by the processor time that drawing the last one took."""

    def __init__(self) -> None:
        self._drawn = float("-inf")
        self._used = 0.0

    def drew(self, clock: float, used: float) -> None:
        """Note that a batch is drawn; `used` is this thread's processor time, in seconds."""
        self._drawn, self._used = clock, used

    def wait(self, clock: float, used: float) -> float:
        """Seconds until the next batch; 0 if it is due."""
        pause = min(max((used - self._used) / MAX_CPU_SHARE, MIN_PAUSE_S), MAX_PAUSE_S)
        return max(0.0, self._drawn + pause - clock)


PANEL_INTERVAL_S = 0.5
"""Seconds between redraws of the panel; faster changes are unreadable."""


class EventApplier:
    """Applies batches of events; `state` says what the model is doing, in a word or two."""

    def __init__(self, session_statistics: SessionStatistics, redraw: Callable[[], object]) -> None:
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
        answer.end(finish)
        self._session_statistics.end()
        self.state = ""
        self._redraw()

    def _note(self, event: Event, answer: Answer) -> None:
        if isinstance(event, Resumed):
            answer.resume(event.pieces)
        elif isinstance(event, Cited):
            answer.cite([citation(passage) for passage in event.passages])
            answer.outcome = event.outcome
        elif isinstance(event, Interpolated):
            answer.states = event.states
            answer.cite(event.sources)
        elif isinstance(event, Remarked):
            answer.remark = event.text
        elif isinstance(event, Dropped):
            answer.note = (
                f"Context full: the model no longer sees the first {event.messages} messages"
            )
        elif isinstance(event, Checking):
            self.state = "checking"
            answer.status = f"checking passage {event.number} of {event.total}…"
        elif isinstance(event, Prefilling) and event.total >= MIN_PREFILL_TOKENS:
            share = percent(event.done / event.total)
            self.state = f"reading {share}"
            answer.status = f"reading {event.done:,} of {event.total:,} tokens…"


class StreamView(Protocol):
    """What the event stream needs of the widget it draws on."""

    def grown(self, answer: Answer, state: str) -> None:
        """Redraw `answer`, which has grown, and show `state` unless it is empty."""
        ...

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after `seconds`."""
        ...

    def redraw_panel(self) -> None: ...


class EventStream:
    """Shows the events of one answer at a time; the model's thread puts them into `queue`."""

    def __init__(
        self, screen: StreamView, session_statistics: SessionStatistics, wake: Callable[[], object]
    ) -> None:
        """`wake` is called on the model's thread, and has the interface call `arrived`."""
        self.queue = EventQueue(wake)
        self._screen = screen
        self._applier = EventApplier(session_statistics, screen.redraw_panel)
        self._throttle = RedrawThrottle()
        self._answer: Answer | None = None
        self._waiting = False

    def begin(self, answer: Answer) -> None:
        """Apply events to `answer` from now on."""
        self._answer = answer

    def arrived(self) -> None:
        """Draw the queued events as soon as the throttle allows."""
        if self._waiting or self._answer is None:
            return
        wait = self._throttle.wait(perf_counter(), thread_time())
        if wait > 0:
            self._waiting = True
            self._screen.later(wait, self._wait_is_over)
        else:
            self._draw(self._answer)

    def end(self, finish: str = INTERRUPTED) -> None:
        """Draw the remaining events; `finish` says how an unfinished answer ended."""
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
