"""The transcript: questions and answers, drawn line by line.

Owns scrolling, following a growing answer, folding reasoning and selecting text. What an entry
looks like is the entry's business, what is laid out `paper.py`'s.

One widget draws all lines, because mounting widgets for each message and laying the screen out
again for each fragment takes most of a core.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.interface.answer import Answer
from app.interface.entries import Entry, Question
from app.interface.look import KINDS, make_look
from app.interface.paper import Paper
from app.interface.rows import Frame, Row

AHEAD = 1
"""Screens laid out beyond the one in view."""


class Transcript(ScrollView, can_focus=True):
    """A scrolling list of entries."""

    FOCUS_ON_CLICK = False  # who selects text goes on typing afterwards

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{kind}" for kind in KINDS}

    tinted: var[bool] = var(False, init=False)
    """Whether answers show the source of each word."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paper = Paper()
        self._frame: Frame | None = None
        self._following = True

    @property
    def allow_select(self) -> bool:
        return True

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, oldest first."""
        return self._paper.entries

    @property
    def rows(self) -> Sequence[Row]:
        """The rows laid out."""
        return self._paper.rows

    @property
    def last_answer(self) -> str:
        """What the model said last, without its reasoning; empty where it said nothing."""
        answers = [entry for entry in self.entries if isinstance(entry, Answer)]
        return answers[-1].parts.answer.strip() if answers else ""

    def show(self, entries: Sequence[Entry]) -> None:
        """Show other entries, at their end."""
        self._paper.show(entries, len(entries))
        self._following = True
        self._fill()

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

    def follow(self) -> None:
        """Go to the end and stay there while it grows."""
        if self._paper.last < len(self._paper.entries) - 1:
            self._paper.show(self._paper.entries, len(self._paper.entries))
        self._following = True
        self._fill()

    def go_to_start(self) -> None:
        """Go to the first entry."""
        self._paper.show(self._paper.entries, 0)
        self._following = False
        self._fill()
        self._scroll_to_row(0)

    def go_to(self, message: int) -> None:
        """Go to the entry of `message`, if it is here."""
        for place, entry in enumerate(self.entries):
            if isinstance(entry, Answer | Question) and entry.message == message:
                self._paper.show(self.entries, place)
                self._following = False
                self._fill()
                self._scroll_to_row(self._paper.start(entry) or 0)

    def toggle_reasoning(self) -> None:
        """Fold or unfold the reasoning of all answers, as the last one is not now."""
        answers = [entry for entry in self.entries if isinstance(entry, Answer)]
        folded = not answers[-1].folded if answers else True
        for answer in answers:
            answer.folded = folded
        if self._frame is not None:
            self._lay_out(self._frame)

    def watch_tinted(self) -> None:
        self._lay_out_again()

    def on_resize(self) -> None:
        self._lay_out_again()
        self._fill()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached and self.size:
            self._lay_out_again()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        at_end = new_value >= self.max_scroll_y and self._paper.last == len(self.entries)
        self._following = at_end
        self._move_scrollbar()
        if round(old_value) != round(new_value):
            self.refresh()
            self.call_next(self._reach)

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row < len(self._paper.rows):
            entry, offset = self._paper.at(row)
            if isinstance(entry, Answer) and entry.fold_row == offset:
                entry.folded = not entry.folded
                self.update_entry(entry)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, without the detour through Textual's cache of styled borders."""
        base = self.rich_style
        top = self.scroll_offset.y
        selection = self.text_selection
        strips = [
            self._line(top + y, base, selection).crop_extend(crop.x, crop.right, base)
            for y in range(crop.y, crop.bottom)
        ]
        for line_filter in self.get_line_filters():
            ground = self.background_colors[1]
            strips = [strip.apply_filter(line_filter, ground) for strip in strips]
        return strips

    def _line(self, y: int, base: Style, selection: Selection | None) -> Strip:
        if self._frame is None or y >= len(self._paper.rows):
            return Strip.blank(self.size.width, base)
        row = self._paper.rows[y]
        if selection is None or (span := selection.get_span(y)) is None:
            return row.strip(self._frame, base, y)
        content = self._selected(row.text_strip(self._frame, base), *span)
        return Strip.join([row.edge(self._frame, base), content.apply_offsets(0, y)])

    def _selected(self, content: Strip, start: int, end: int) -> Strip:
        """`content` with its characters from `start` to `end` (-1: to the end) highlighted."""
        text = content.text.rstrip()
        left = cell_len(text[:start])
        right = cell_len(text if end < 0 else text[:end])
        if left >= right:
            return content
        style = self.screen.get_component_rich_style("screen--selection")
        before, selected, after = content.divide([left, right, content.cell_length])
        return Strip.join([before, selected.apply_style(style), after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, as its lines stand on the screen."""
        return selection.extract("\n".join(row.text for row in self._paper.rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def action_scroll_home(self) -> None:
        self.go_to_start()

    def action_scroll_end(self) -> None:
        self.follow()

    def _lay_out_again(self) -> None:
        """Lay out for the present width and look, if they are new."""
        if not self.size:
            return
        frame = self._present_frame()
        if frame != self._frame or not self._paper.rows:
            self._frame = frame
            self._lay_out(frame)

    def _lay_out(self, frame: Frame) -> None:
        """Lay out what is laid out once more, keeping what is at the top."""
        anchor = self._anchor()
        self._paper.lay_out_again(frame)
        self._fill()
        self.refresh()
        if anchor and not self._following:
            entry, offset = anchor
            self._scroll_to_row((self._paper.start(entry) or 0) + offset)

    def _anchor(self) -> tuple[Entry, int] | None:
        """The entry at the top of the screen, and which row of it."""
        top = self.scroll_offset.y
        return self._paper.at(top) if top < len(self._paper.rows) else None

    def _present_frame(self) -> Frame:
        look = make_look(
            self._style_of, self.background_colors[1], dark=self.app.current_theme.dark
        )
        return Frame(look, self.size.width, self.tinted)

    def _style_of(self, component: str) -> Style:
        """A component's style, with a ground only where it has one of its own."""
        style = self.get_component_rich_style(component)
        if style.bgcolor != self.rich_style.bgcolor:
            return style
        return Style(color=style.color, bold=style.bold, italic=style.italic)

    def _fill(self) -> None:
        """Lay out enough to fill the screen and some more."""
        if self._frame is None:
            return
        rows = self.size.height * (1 + AHEAD)
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
            self._paper.grow_down(self._frame, height * AHEAD)
        added = self._paper.grow_up(self._frame, height * AHEAD) if top < height else 0
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
