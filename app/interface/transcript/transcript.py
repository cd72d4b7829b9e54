"""The transcript: questions and answers, as far as the person has scrolled.

Owns when an entry has to be drawn anew: it grew, its reasoning was folded, or all of them look
different now. What it looks like is the entry's business, where the view is `scrolling.py`'s.

A page of entries that is scrolled: laid out as far as it is in sight, and some more.

Owns where the view is, and following what grows at the end. What is laid out is `paper.py`'s
business, how lines are drawn `page.py`'s, and when they have to be drawn anew `transcript.py`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.geometry import Size
from textual.reactive import var
from textual.widget import Widget

from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Entry, Question
from app.interface.transcript.rows import Frame, Row
from app.interface.transcript.styles import KINDS
from app.interface.transcript.window import LineView

SCREENS_AHEAD = 1
"""Screens laid out beyond the one in view."""


class Scrolling(LineView):
    """Entries, as they are scrolled through, from the oldest to the one that grows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._following = True

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, oldest first."""
        return self._paper.entries

    @property
    def rows(self) -> Sequence[Row]:
        """The rows laid out."""
        return self._paper.rows

    def entry_at(self, row: int) -> tuple[Entry, int] | None:
        """The entry that has `row`, and which row of it that is; None below the last."""
        return self._paper.at(row) if row < len(self._paper.rows) else None

    def show(self, entries: Sequence[Entry]) -> None:
        """Show other entries, at their end."""
        self._paper.show(entries, len(entries))
        self._following = True
        self._fill()

    def follow(self) -> None:
        """Go to the end and stay there while it grows."""
        if self._paper.last < len(self._paper.entries) - 1:
            self._paper.show(self._paper.entries, len(self._paper.entries))
        self._following = True
        self._fill()

    def go_to_start(self) -> None:
        """Go to the first entry."""
        self._leave_end(0)
        self._scroll_to_row(0)

    def go_to_entry(self, place: int) -> None:
        """Go to the entry that has `place` others before it."""
        self._leave_end(place)
        self._scroll_to_row(self._paper.start(self.entries[place]) or 0)

    def action_scroll_home(self) -> None:
        self.go_to_start()

    def action_scroll_end(self) -> None:
        self.follow()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        at_end = new_value >= self.max_scroll_y and self._paper.last == len(self.entries)
        self._following = at_end
        self._move_scrollbar()
        if round(old_value) != round(new_value):
            self.refresh()
            self.call_next(self._reach)

    def _leave_end(self, place: int) -> None:
        """Lay out from the entry at `place` on, and stay there while the end grows."""
        self._paper.show(self.entries, place)
        self._following = False
        self._fill()

    def _fill(self) -> None:
        """Lay out enough to fill the screen and some more."""
        if self._frame is None:
            return
        rows = self.size.height * (1 + SCREENS_AHEAD)
        if self._following:
            self._paper.grow_down(self._frame, sys.maxsize)
        if len(self._paper.rows) < rows:
            self._paper.grow_up(self._frame, rows)
            self._paper.grow_down(self._frame, rows)
        self._measure()
        self.refresh()
        if self._following:
            self._scroll_to_row(len(self._paper.rows))
        self._move_scrollbar()

    def _reach(self) -> None:
        """Lay out more where the screen has come near an end of what is laid out."""
        if self._frame is None:
            return
        height, top = self.size.height, self.scroll_offset.y
        if top + 2 * height > len(self._paper.rows):
            self._paper.grow_down(self._frame, height * SCREENS_AHEAD)
        added = self._paper.grow_up(self._frame, height * SCREENS_AHEAD) if top < height else 0
        self._measure()
        if added:
            self._scroll_to_row(top + added)

    def _measure(self) -> None:
        """Tell the scrollbar how long the transcript is.

        Assigning `virtual_size` would lay the whole screen out again; nothing else can move here,
        because the scrollbar always has its place.
        """
        rows = len(self._paper.rows)
        if rows != self.virtual_size.height or self.size.width != self.virtual_size.width:
            self.set_reactive(Widget.virtual_size, Size(self.size.width, rows))
            self._move_scrollbar()
        if self.scroll_y > self.max_scroll_y:
            self._scroll_to_row(self.max_scroll_y)

    def _move_scrollbar(self) -> None:
        """Show where the screen is, unless it is at the end, where everything begins and grows."""
        self.styles.scrollbar_visibility = "hidden" if self._following else "visible"
        if not self._following:
            bar = self.vertical_scrollbar
            bar.window_virtual_size, bar.position = len(self._paper.rows), self.scroll_y

    def _scroll_to_row(self, row: int) -> None:
        self.scroll_to(y=min(row, self.max_scroll_y), animate=False, force=True, immediate=True)


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
