"""The list in the model picker: which rows stand in it, and which of them Enter is about.

Owns drawing them to its width. What stands on a row is `models_rows.py`'s business, what is done
with it the picker's.
"""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.widgets import OptionList

from app.interface.colours import ink_of, inks
from app.interface.models_rows import Row, drawn, place_of, verb

NARROWEST = 20
"""Columns of a row at least."""


class ModelList(OptionList, can_focus=False):
    """Rows of two lines; the keys that move in it are pressed in the box above.

    Attributes:
        rows: what is listed, from the top.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = inks("picker")

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.rows: list[Row] = []
        self._room = 0

    @property
    def chosen(self) -> Row | None:
        """The row that Enter is about; None while there is none."""
        return self.rows[self.highlighted] if self.highlighted is not None else None

    @property
    def deed(self) -> str:
        """What Enter does; empty where it does nothing."""
        return verb(self.chosen, self._room) if self.chosen is not None else ""

    def put(self, rows: list[Row], room: int, chosen: Row | None) -> None:
        """List other rows, with `room` bytes of memory free; Enter is about `chosen` if it can."""
        self.rows, self._room = rows, room
        self.clear_options()
        self.add_options([self._drawn(row) for row in rows])
        self.highlighted = place_of(chosen, rows)

    def fit(self) -> None:
        """Draw all rows again: the width is another one."""
        self.put(self.rows, self._room, self.chosen)

    def redraw(self, changed: Row) -> bool:
        """Draw one row again; whether it is listed."""
        places = [place for place, row in enumerate(self.rows) if row is changed]
        for place in places:
            self.replace_option_prompt_at_index(place, self._drawn(changed))
        return bool(places)

    def _drawn(self, row: Row) -> Text:
        width = max(self.scrollable_content_region.width - 2, NARROWEST)
        return drawn(row, self._room, width, ink_of(self, "picker"))
