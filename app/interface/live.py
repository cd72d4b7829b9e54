"""Shows the events of the turn at hand: in its answer, in the panel, in the line at the top.

Owns what each event means on the screen, and how often the panel changes. Events come in batches;
a batch is laid out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from app.events import Dropped, Event, Finished, Piece, Prefilling, Wrote
from app.figures import Figures
from app.interface import wording
from app.interface.answer import Answer

PANEL_SECONDS = 0.5
"""Figures that change faster than this cannot be read."""

NOTICEABLE_TOKENS = 256
"""Prompts shorter than this are read before one could say so."""


class Live:
    """Applies batches of events.

    Attributes:
        state: what the model is doing, in a word or two.
    """

    def __init__(self, figures: Figures, redraw: Callable[[], object]) -> None:
        """`redraw` draws the panel again."""
        self.state = ""
        self._figures = figures
        self._redraw = redraw
        self._redrawn = float("-inf")

    def show(self, events: Sequence[Event], answer: Answer) -> None:
        """Take a batch into `answer`."""
        moment = monotonic()
        pieces: list[Piece] = []
        for event in events:
            self._figures.observe(event, moment)
            if isinstance(event, Wrote):
                pieces.extend(event.pieces)
            else:
                self._note(event, answer)
        if pieces:
            answer.append_fragment(pieces)
            self.state = "thinking…" if answer.parts.thinking else "writing"
        if finished := next((event for event in events if isinstance(event, Finished)), None):
            self.end(answer, finished.finish)
        elif moment - self._redrawn >= PANEL_SECONDS:
            self._redrawn = moment
            self._redraw()

    def end(self, answer: Answer, finish: str) -> None:
        """The answer ended, of itself or not."""
        answer.end(finish)
        self._figures.end()
        self.state = ""
        self._redraw()

    def _note(self, event: Event, answer: Answer) -> None:
        if isinstance(event, Dropped):
            answer.note = f"the model no longer sees the first {event.messages} messages"
        elif isinstance(event, Prefilling) and event.total >= NOTICEABLE_TOKENS:
            share = wording.percent(event.done / event.total)
            self.state = f"reading {share}"
            answer.status = f"reading {event.done:,} of {event.total:,} tokens…"
