"""Brings what the model says to the screen, no faster than the processor's share allows.

Owns the events on their way, from the answering thread to the answer they are shown in, and when
they are drawn. What each event means is `live.py`'s business, what turn it belongs to the
conversation's.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, thread_time
from typing import Protocol

from app.figures import Figures
from app.interface.answer import GROWING, Answer
from app.interface.live import Live
from app.interface.outbox import Outbox, Pacer
from datastores.records import INTERRUPTED


class Screen(Protocol):
    """What the feed asks of the widget it draws on."""

    def grown(self, answer: Answer, state: str) -> None:
        """Draw `answer`, which has grown; the model is at `state`, which may be empty."""
        ...

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in so many seconds."""
        ...

    def redraw_figures(self) -> None:
        """Draw the panel again."""
        ...


class Feed:
    """Feeds one answer at a time.

    Attributes:
        outbox: where the answering thread puts its events.
    """

    def __init__(self, screen: Screen, figures: Figures, wake: Callable[[], object]) -> None:
        """`wake` is called on the answering thread when `arrived` has to be."""
        self.outbox = Outbox(wake)
        self._screen = screen
        self._live = Live(figures, screen.redraw_figures)
        self._pacer = Pacer()
        self._answer: Answer | None = None
        self._waiting = False

    def begin(self, answer: Answer) -> None:
        """Feed `answer` from now on."""
        self._answer = answer

    def arrived(self) -> None:
        """Draw what has arrived, now or as soon as the processor's share allows."""
        if self._waiting or self._answer is None:
            return
        wait = self._pacer.wait(monotonic(), thread_time())
        if wait > 0:
            self._waiting = True
            self._screen.later(wait, self._wait_is_over)
        else:
            self._draw(self._answer)

    def end(self) -> None:
        """Draw the rest; an answer that was not finished was interrupted."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        self._draw(answer)
        if answer.finish == GROWING:
            self._live.end(answer, INTERRUPTED)
            self._screen.grown(answer, "")

    def _wait_is_over(self) -> None:
        self._waiting = False
        self.arrived()

    def _draw(self, answer: Answer) -> None:
        self._pacer.drew(monotonic(), thread_time())
        self._live.show(self.outbox.take(), answer)
        self._screen.grown(answer, self._live.state)
