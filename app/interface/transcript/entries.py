"""The entries of a transcript other than answers: questions and the greeting.

An entry owns its text and lays it out as rows; it knows nothing of scrolling.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.text import Text

from app.interface.transcript.plain_text import PlainText, TextCollector, spans_of
from app.interface.transcript.rows import Layout, Row, rows_of
from app.sanitise import clean

BAR = "▌"


class Question:
    """A message of the person.

    Attributes:
        message: id of the stored message; None until it is stored.
        version: which of its versions this is; empty where there is only one.
        texts: what can be selected, once it is laid out.
    """

    def __init__(self, text: str, message: int | None = None) -> None:
        self.text = clean(text)
        self.message = message
        self.version = ""
        self.texts: list[PlainText] = []
        self._laid_out_for: tuple[Layout, str] | None = None
        self._rows: list[Row] = []

    def rows(self, layout: Layout) -> list[Row]:
        if (layout, self.version) != self._laid_out_for:
            self._laid_out_for, self._rows = (layout, self.version), self._lay_out(layout)
        return self._rows

    def _lay_out(self, layout: Layout) -> list[Row]:
        styles = layout.styles
        collector = TextCollector()
        text = collector.add(Text(self.text, overflow="fold"))
        lines, self.texts = styles.lines(text, layout.width), collector.texts
        if self.version:
            lines.append([Segment(self.version, styles["dim"])])
        bar = Segment(BAR, styles["question-bar"])
        rows = rows_of(lines, spans_of(lines, self.texts))
        for row in rows:
            row.bar, row.background = bar, styles["question"]
        return [*rows, Row([])]


class Greeting:
    """What an empty chat shows: `lines` of plain text, the first one in the accent colour."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = tuple(clean(line) for line in lines)
        self.texts: list[PlainText] = []

    def rows(self, layout: Layout) -> list[Row]:
        styles = layout.styles
        title, *rest = self.lines
        text = Text.assemble((title, styles["heading"]), ("\n" + "\n".join(rest), styles["dim"]))
        collector = TextCollector()
        lines = [[], *styles.lines(collector.add(text), layout.width)]
        self.texts = collector.texts
        return rows_of(lines, spans_of(lines, self.texts))
