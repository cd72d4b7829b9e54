"""The transcript widget: draws rows, scrolls through them, and follows the end as it grows.

One widget draws all lines: mounting widgets for each message and laying the screen out again for
each fragment would take most of a core.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region, Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.conversation.citations import Citation
from app.interface.messages import CitationChosen
from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Question
from app.interface.transcript.rows import GUTTER, Entry, Layout, Row, RowWindow
from app.interface.transcript.selection import (
    Extent,
    highlight,
    offset_at,
    selected_text,
    text_at,
)
from app.interface.transcript.styles import KINDS, make_styles

SCREENS_AHEAD = 1
"""Number of screens laid out beyond the visible one."""


class LineView(ScrollView):
    """Draws the rows of a window, one per line, with the selection."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._window = RowWindow()
        self._layout: Layout | None = None
        self._selection: Selection | None = None
        self._extent: Extent | None = None

    @property
    def allow_select(self) -> bool:
        return True

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, bypassing Textual's cache of styled borders."""
        base = self.rich_style
        top = self.scroll_offset.y
        extent = self._extent_of(self.text_selection)
        strips = [
            self._line(top + y, base, extent).crop_extend(crop.x, crop.right, base)
            for y in range(crop.y, crop.bottom)
        ]
        for line_filter in self.get_line_filters():
            background = self.background_colors[1]
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """The visible line `y` for finding the place under the mouse, one segment per cell."""
        cells = range(self.size.width)
        places = (self._offset_at(y + self.scroll_offset.y, cell) for cell in cells)
        return Strip(
            [
                Segment(" ", Style.from_meta({"offset": place}) if place is not None else None)
                for place in places
            ]
        )

    def _offset_at(self, row: int, cell: int) -> Offset | None:
        """The place in the texts at `cell`, counted from the left edge of the widget."""
        left = self._layout.margin + GUTTER if self._layout else 0
        return offset_at(self._window, row, cell - left)

    def _line(self, y: int, base: Style, extent: Extent | None) -> Strip:
        if self._layout is None or y >= len(self._window.rows):
            return Strip.blank(self.size.width, base)
        row = self._window.rows[y]
        if extent is None or not row.spans:
            return row.strip(self._layout, base)
        # Only its background: the component's colour is that of the background, too.
        style = Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)
        content = row.text_strip(self._layout, base)
        content = highlight(content, self._window, y, extent, style)
        return Strip.join([row.edge(self._layout, base), content])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was written, whatever the width of the screen."""
        extent = self._extent_of(selection)
        if extent is None or self._layout is None:
            return None
        return selected_text(self._window, self._layout, extent), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._extent_of(selection)
        self.refresh()

    def _extent_of(self, selection: Selection | None) -> Extent | None:
        """The places where `selection` begins and ends.

        An end outside of this widget is the edge of the view at the time of the selection.
        """
        if selection != self._selection:
            self._selection, self._extent = selection, self._visible_extent(selection)
        return self._extent

    def _visible_extent(self, selection: Selection | None) -> Extent | None:
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height - 1
        first, last = self._offset_at(top, 0), self._offset_at(bottom, self.size.width)
        if selection is None or first is None or last is None:
            return None
        start = first if selection.start is None else selection.start
        return start, Offset(last.x + 1, last.y) if selection.end is None else selection.end

    def select_word(self, offset: Offset) -> None:
        """Select the word at a place."""
        start, end = text_at(self._window, offset.y).word_at(offset.x)
        self._select(offset.y, start, end)

    def select_paragraph(self, offset: Offset) -> None:
        """Select the whole text at a place: a paragraph, a block of code, a cell."""
        text = text_at(self._window, offset.y)
        self._select(offset.y, text.marker, len(text.shown))

    def _select(self, number: int, start: int, end: int) -> None:
        self.screen.selections = {self: Selection(Offset(start, number), Offset(end, number))}

    def unselect(self) -> None:
        """Clear a selection in texts that are no longer shown."""
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def current_layout(self, *, highlight_origins: bool) -> Layout:
        """The layout for the current theme and width."""
        dark = self.app.current_theme.dark
        styles = make_styles(self._style_of, self.background_colors[1], dark=dark)
        return Layout(styles, self.size.width, highlight_origins)

    def _style_of(self, component: str) -> Style:
        """A component's style, with a background only if it differs from the widget's."""
        style = self.get_component_rich_style(component)
        if style.bgcolor != self.rich_style.bgcolor:
            return style
        return Style(color=style.color, bold=style.bold, italic=style.italic)


class EntryScroll(LineView):
    """Scrolls through entries, and lays out more of them as the view approaches."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._following = True

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, oldest first."""
        return self._window.entries

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that are laid out."""
        return self._window.rows

    def entry_at(self, row: int) -> tuple[Entry, int] | None:
        """The entry of `row`, and the row's index within it; None below the last entry."""
        return self._window.entry_at(row) if row < len(self._window.rows) else None

    def show(self, entries: Sequence[Entry]) -> None:
        """Show other entries, scrolled to the end."""
        self.unselect()
        self._window.show(entries, len(entries))
        self._following = True
        self._fill()

    def follow(self) -> None:
        """Scroll to the end and stay there while it grows."""
        if self._window.last < len(self._window.entries) - 1:
            self._window.show(self._window.entries, len(self._window.entries))
        self._following = True
        self._fill()

    def go_to_start(self) -> None:
        """Scroll to the first entry."""
        self._leave_end(0)
        self._scroll_to_row(0)

    def go_to_entry(self, index: int) -> None:
        """Scroll to the entry at `index`."""
        self._leave_end(index)
        self._scroll_to_row(self._window.first_row(self.entries[index]) or 0)

    def action_scroll_home(self) -> None:
        self.go_to_start()

    def action_scroll_end(self) -> None:
        self.follow()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        at_end = new_value >= self.max_scroll_y and self._window.last == len(self.entries)
        self._following = at_end
        self._move_scrollbar()
        if round(old_value) != round(new_value):
            self.refresh()
            self.call_next(self._extend)

    def _leave_end(self, index: int) -> None:
        """Lay out from the entry at `index` on, and stay there while the end grows."""
        self._window.show(self.entries, index)
        self._following = False
        self._fill()

    def _fill(self) -> None:
        """Lay out the visible screen and `SCREENS_AHEAD` more."""
        if self._layout is None:
            return
        rows = self.size.height * (1 + SCREENS_AHEAD)
        if self._following:
            self._window.grow_down(self._layout, sys.maxsize)
        if len(self._window.rows) < rows:
            self._window.grow_up(self._layout, rows)
            self._window.grow_down(self._layout, rows)
        self._update_size()
        self.refresh()
        if self._following:
            self._scroll_to_row(len(self._window.rows))
        self._move_scrollbar()

    def _extend(self) -> None:
        """Lay out more entries if the view is near an end of the window."""
        if self._layout is None:
            return
        height, top = self.size.height, self.scroll_offset.y
        if top + 2 * height > len(self._window.rows):
            self._window.grow_down(self._layout, height * SCREENS_AHEAD)
        added = self._window.grow_up(self._layout, height * SCREENS_AHEAD) if top < height else 0
        self._update_size()
        if added:
            self._scroll_to_row(top + added)

    def _update_size(self) -> None:
        """Set the virtual size to the rows that are laid out.

        Assigning `virtual_size` would lay the whole screen out again, needlessly: the space for the
        scrollbar is reserved.
        """
        rows = len(self._window.rows)
        if rows != self.virtual_size.height or self.size.width != self.virtual_size.width:
            self.set_reactive(Widget.virtual_size, Size(self.size.width, rows))
            self._move_scrollbar()
        if self.scroll_y > self.max_scroll_y:
            self._scroll_to_row(self.max_scroll_y)

    def _move_scrollbar(self) -> None:
        """Show the scrollbar, except while the view follows the end."""
        self.styles.scrollbar_visibility = "hidden" if self._following else "visible"
        if not self._following:
            bar = self.vertical_scrollbar
            bar.window_virtual_size, bar.position = len(self._window.rows), self.scroll_y

    def _scroll_to_row(self, row: int) -> None:
        self.scroll_to(y=min(row, self.max_scroll_y), animate=False, force=True, immediate=True)


class Transcript(EntryScroll, can_focus=True):
    """The questions and answers of a chat."""

    FOCUS_ON_CLICK = False  # after selecting text, the person continues typing in the prompt

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{kind}" for kind in KINDS}

    origins_highlighted: var[bool] = var(False, init=False)
    """Whether answers show the origin of each word."""

    @property
    def last_answer(self) -> str:
        """The last answer without its reasoning; empty if there is none."""
        answer = self._last_answer
        return answer.parts.answer.strip() if answer is not None else ""

    @property
    def last_citations(self) -> Sequence[Citation]:
        """The passages given to the last answer."""
        return self._last_answer.citations if self._last_answer is not None else ()

    @property
    def _last_answer(self) -> Answer | None:
        answers = (entry for entry in reversed(self.entries) if isinstance(entry, Answer))
        return next(answers, None)

    def go_to_message(self, message: int) -> None:
        """Scroll to the entry of `message`, if it is in this chat."""
        for index, entry in enumerate(self.entries):
            if isinstance(entry, Answer | Question) and entry.message == message:
                self.go_to_entry(index)

    def update_entry(self, entry: Entry) -> None:
        """Redraw `entry` where it changed; a view at the end stays at the end."""
        if self._layout is None:
            return
        changed = self._window.update(entry, self._layout)
        self._update_size()
        top = self.scroll_offset.y
        if changed.start < top + self.size.height and changed.stop > top:
            self.refresh_lines(changed.start, len(changed))
        if self._following:
            self._scroll_to_row(len(self._window.rows))

    def update_all(self) -> None:
        """Redraw every entry."""
        if self._layout is not None:
            self._lay_out(self._layout)

    def toggle_reasoning(self) -> None:
        """Fold or unfold the reasoning of all answers; the last answer decides which."""
        answers = [entry for entry in self.entries if isinstance(entry, Answer)]
        folded = not answers[-1].folded if answers else True
        for answer in answers:
            answer.folded = folded
        self.update_all()

    def on_click(self, event: events.Click) -> None:
        if event.chain > 1:
            event.prevent_default()  # Textual would select the whole widget
            place = self._offset_at(event.y + self.scroll_offset.y, event.x)
            if place is not None:
                select = self.select_word if event.chain == 2 else self.select_paragraph
                select(place)
            return
        entry, offset = self.entry_at(event.y + self.scroll_offset.y) or (None, 0)
        if isinstance(entry, Answer) and entry.fold_row == offset:
            entry.folded = not entry.folded
            self.update_entry(entry)
        elif isinstance(entry, Answer) and offset in entry.citation_rows:
            index = entry.citation_rows[offset]
            self.post_message(CitationChosen(entry.citations, index))
        elif isinstance(entry, Question) and entry.toggle_fold(offset):
            self.update_entry(entry)

    def watch_origins_highlighted(self) -> None:
        self.unselect()
        self._lay_out_if_changed()

    def on_resize(self) -> None:
        self._lay_out_if_changed()
        self._fill()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached and self.size:
            self._lay_out_if_changed()

    def _lay_out_if_changed(self) -> None:
        """Lay out again if the width or the theme has changed."""
        if not self.size:
            return
        layout = self.current_layout(highlight_origins=self.origins_highlighted)
        if layout != self._layout or not self._window.rows:
            self._layout = layout
            self._lay_out(layout)

    def _lay_out(self, layout: Layout) -> None:
        """Lay the window out again, keeping the first visible row in place."""
        anchor = self.entry_at(self.scroll_offset.y)
        self._window.lay_out_again(layout)
        self._fill()
        self.refresh()
        if anchor and not self._following:
            entry, offset = anchor
            self._scroll_to_row((self._window.first_row(entry) or 0) + offset)
