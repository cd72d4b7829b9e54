"""Words and number formats that several screens share."""

from __future__ import annotations

import textwrap
from datetime import datetime

from rich.cells import cell_len

from app.figures import format_time_left
from app.interface.cells import keep_end
from app.sanitise import one_line

NEW_CHAT = "New chat"
TUNED = "±"
"""Mark of a chat with its own settings."""


def short_name(name: str, columns: int) -> str:
    """A model's name on one line; a long one loses its folders or owner first, then its start."""
    line = one_line(name)
    if cell_len(line) > columns and "/" in line[:-1]:
        is_path = line[0] in "/~"
        line = line.rpartition("/")[2] if is_path else line.partition("/")[2]
    return keep_end(line, columns) if columns > 0 else ""


def age(then: datetime, now: datetime) -> str:
    """The time, the weekday or the date of `then`, in at most six characters."""
    days = (now.date() - then.date()).days
    if days <= 0:
        return f"{then:%H:%M}"
    if days < 7:
        return f"{then:%a}"
    return f"{then:%d %b}" if then.year == now.year else f"{then:%Y}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `<0.1 s`."""
    if 0 < seconds < 0.05:
        return "<0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def time_left(seconds: float | None) -> str:
    """` · 3 min left`; empty while unknown."""
    return "" if seconds is None else f" · {format_time_left(seconds)}"


def times(value: float) -> str:
    """`2.3×`; two decimals below 1.1."""
    return f"{value:.2f}×" if value < 1.1 else f"{value:.1f}×"


def wrapped(text: str, width: int) -> list[str]:
    """`text` wrapped to lines of at most `width` characters."""
    return textwrap.wrap(text, max(width, 8))
