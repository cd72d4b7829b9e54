"""The transcript: questions and answers, as far as the person has scrolled.

Owns when an entry has to be drawn anew: it grew, its reasoning was folded, or all of them look
different now. What it looks like is the entry's business, where the view is `scrolling.py`'s.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.reactive import var

from app.interface.answer import Answer
from app.interface.entries import Entry, Question
from app.interface.look import KINDS
from app.interface.rows import Frame
from app.interface.scrolling import Scrolling


class Transcript(Scrolling, can_focus=True):
    """A scrolling list of entries."""

    FOCUS_ON_CLICK = False  # who selects text goes on typing afterwards

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{kind}" for kind in KINDS}

    tinted: var[bool] = var(False, init=False)
    """Whether answers show the source of each word."""

    @property
    def last_answer(self) -> str:
        """What the model said last, without its reasoning; empty where it said nothing."""
        answers = [entry for entry in self.entries if isinstance(entry, Answer)]
        return answers[-1].parts.answer.strip() if answers else ""

    def go_to(self, message: int) -> None:
        """Go to the entry of `message`, if it is here."""
        for place, entry in enumerate(self.entries):
            if isinstance(entry, Answer | Question) and entry.message == message:
                self.go_to_entry(place)

    def update_entry(self, entry: Entry) -> None:
        """Draw `entry` again where it changed; a view at the end stays at the end."""
        if self._frame is None:
            return
        changed = self._paper.update(entry, self._frame)
        self._measure()
        top = self.scroll_offset.y
        if changed.start < top + self.size.height and changed.stop > top:
            self.refresh_lines(changed.start, len(changed))
        if self._following:
            self._scroll_to_row(len(self._paper.rows))

    def update_all(self) -> None:
        """Draw every entry again."""
        if self._frame is not None:
            self._lay_out(self._frame)

    def toggle_reasoning(self) -> None:
        """Fold or unfold the reasoning of all answers, as the last one is not now."""
        answers = [entry for entry in self.entries if isinstance(entry, Answer)]
        folded = not answers[-1].folded if answers else True
        for answer in answers:
            answer.folded = folded
        self.update_all()

    def on_click(self, event: events.Click) -> None:
        entry, offset = self.entry_at(event.y + self.scroll_offset.y) or (None, 0)
        if isinstance(entry, Answer) and entry.fold_row == offset:
            entry.folded = not entry.folded
            self.update_entry(entry)

    def watch_tinted(self) -> None:
        self._lay_out_again()

    def on_resize(self) -> None:
        self._lay_out_again()
        self._fill()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached and self.size:
            self._lay_out_again()

    def _lay_out_again(self) -> None:
        """Lay out for the present width and look, if they are new."""
        if not self.size:
            return
        frame = self.present_frame(tinted=self.tinted)
        if frame != self._frame or not self._paper.rows:
            self._frame = frame
            self._lay_out(frame)

    def _lay_out(self, frame: Frame) -> None:
        """Lay out what is laid out once more, keeping what is at the top."""
        anchor = self.entry_at(self.scroll_offset.y)
        self._paper.lay_out_again(frame)
        self._fill()
        self.refresh()
        if anchor and not self._following:
            entry, offset = anchor
            self._scroll_to_row((self._paper.start(entry) or 0) + offset)
