"""Carries events from the answering thread to the screen, and says when the screen may draw them.

Owns the only state that both threads touch. Events come hundreds of times a second; the screen
takes them in batches, and spends at most a small share of the processor on it: a batch that was
dear to draw makes the next one wait longer.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from app.events import Event

SHARE = 0.035
"""Part of one core that drawing may take."""

SHORTEST = 1 / 25
LONGEST = 1 / 3
"""Seconds between two batches, at least and at most."""


class Outbox:
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


class Pacer:
    """Spaces batches by what drawing the last one took."""

    def __init__(self) -> None:
        self._drawn = float("-inf")
        self._used = 0.0

    def drew(self, clock: float, used: float) -> None:
        """A batch is drawn now; `used` is the processor time of this thread so far, in seconds."""
        self._drawn, self._used = clock, used

    def wait(self, clock: float, used: float) -> float:
        """Seconds to wait for the next batch; 0 where it is due."""
        pause = min(max((used - self._used) / SHARE, SHORTEST), LONGEST)
        return max(0.0, self._drawn + pause - clock)
