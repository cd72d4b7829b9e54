"""What a transcript is made of, beside answers: questions, dividers and the greeting.

An entry knows its text and lays it out as rows; it knows nothing of scrolling.
"""

from __future__ import annotations

from typing import Protocol

from rich.segment import Segment
from rich.text import Text

from app.interface.transcript.rows import Frame, Row, rows_of
from app.sanitise import clean

BAR = "▌"


class Entry(Protocol):
    """One part of the transcript."""

    def rows(self, frame: Frame) -> list[Row]:
        """The entry laid out; rows that have not changed are the same objects as before."""
        ...


class Question:
    """What the person said.

    Attributes:
        message: id of the stored message; None until it is known.
        version: which of its versions this is; empty for the only one.
    """

    def __init__(self, text: str, message: int | None = None) -> None:
        self.text = clean(text)
        self.message = message
        self.version = ""
        self._laid_out_for: tuple[Frame, str] | None = None
        self._rows: list[Row] = []

    def rows(self, frame: Frame) -> list[Row]:
        if (frame, self.version) != self._laid_out_for:
            self._laid_out_for, self._rows = (frame, self.version), self._laid_out(frame)
        return self._rows

    def _laid_out(self, frame: Frame) -> list[Row]:
        look = frame.look
        lines = look.lines(Text(self.text, overflow="fold", tab_size=4), frame.width)
        if self.version:
            lines.append([Segment(self.version, look["dim"])])
        bar = Segment(BAR, look["question-bar"])
        return [*(Row(line, bar, look["question"]) for line in lines), Row([])]


class Divider:
    """A thin line with a few words in it."""

    def __init__(self, text: str) -> None:
        self.text = clean(text)

    def rows(self, frame: Frame) -> list[Row]:
        rule = frame.look["rule"]
        text = Text(f" {self.text} ", style=frame.look["dim"], overflow="ellipsis", no_wrap=True)
        text.truncate(frame.width - 4, overflow="ellipsis")
        line = Text.assemble(("──", rule), text, ("─" * (frame.width - 2 - text.cell_len), rule))
        return rows_of([*frame.look.lines(line, frame.width), []])


class Greeting:
    """What stands in an empty chat: `lines` of plain text, the first one in the accent colour."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = tuple(clean(line) for line in lines)

    def rows(self, frame: Frame) -> list[Row]:
        look = frame.look
        title, *rest = self.lines
        text = Text.assemble((title, look["heading"]), ("\n" + "\n".join(rest), look["dim"]))
        return rows_of([[], *look.lines(text, frame.width)])
