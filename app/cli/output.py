"""Output that commands share: a progress line on stderr, tables, formatted numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import monotonic

import click

from app.sanitise import one_line

INTERVAL_S = 0.1
"""Minimum seconds between updates, each of which costs time."""
MAX_LINE_CHARACTERS = 2000
"""Enough for names and paths; hostile ones do not fill the screen."""
CLEAR = "\r\x1b[K"


class StatusLine:
    """A progress line on stderr. Writes nothing unless stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._to_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line, at most every `INTERVAL_S`."""
        now = monotonic()
        if self._to_terminal and now - self._shown >= INTERVAL_S:
            import shutil  # here, as most output goes without a status line

            self._shown = now
            width = shutil.get_terminal_size().columns - 1
            click.echo(CLEAR + one_line(text, width), nl=False, err=True)

    def clear(self) -> None:
        """Erase the line."""
        if self._to_terminal and self._shown:
            self._shown = 0.0
            click.echo(CLEAR, nl=False, err=True)


Row = Mapping[str, object]


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Rows as aligned text; `columns` maps keys to format specs such as `.2f`. None is a dash."""
    heads = [key.replace("_", " ") for key in columns]
    cells = [[_cell(row[key], spec) for key, spec in columns.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [heads, *cells]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(value: object, spec: str) -> str:
    return "–" if value is None else format(value, spec)


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `2 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
