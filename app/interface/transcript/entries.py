"""The entries of a transcript other than answers: questions and the greeting.

An entry owns its text and lays it out as rows; it knows nothing of scrolling.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.text import Text

from app.conversation.attachments import Attachment
from app.interface.transcript.plain_text import PlainText, TextCollector, spans_of
from app.interface.transcript.rows import Layout, Row, rows_of
from app.interface.transcript.styles import Line
from app.sanitise import clean, one_line

BAR = "▌"

MAX_SHOWN_CHARACTERS = 20_000
"""Of a question, and of an unfolded attachment."""


class Question:
    """A message of the person.

    Attributes:
        message: id of the stored message; None until it is stored.
        version: which of its versions this is; empty where there is only one.
        attachments: the files that go with it, a line each, folded.
        texts: what can be selected, once it is laid out.
    """

    def __init__(
        self, text: str, message: int | None = None, attachments: Sequence[Attachment] = ()
    ) -> None:
        self.text = clean(text)
        self.message = message
        self.version = ""
        self.attachments = attachments
        self.texts: list[PlainText] = []
        self._unfolded: frozenset[int] = frozenset()
        self._fold_rows: dict[int, int] = {}
        self._laid_out_for: tuple[Layout, str, frozenset[int]] | None = None
        self._rows: list[Row] = []

    def rows(self, layout: Layout) -> list[Row]:
        state = (layout, self.version, self._unfolded)
        if state != self._laid_out_for:
            self._laid_out_for, self._rows = state, self._lay_out(layout)
        return self._rows

    def toggle_fold(self, row: int) -> bool:
        """Fold or unfold the attachment that `row` names; False if it names none."""
        attachment = self._fold_rows.get(row)
        if attachment is None:
            return False
        self._unfolded ^= {attachment}
        return True

    def toggle_folds(self) -> None:
        """Unfold all attachments; fold them if all are unfolded."""
        every = frozenset(range(len(self.attachments)))
        self._unfolded = frozenset() if self._unfolded == every else every

    def _lay_out(self, layout: Layout) -> list[Row]:
        styles = layout.styles
        collector = TextCollector()
        lines = self._attached_lines(layout, collector)
        text = collector.add(Text(beginning(self.text), overflow="fold"))
        lines += styles.lines(text, layout.width)
        self.texts = collector.texts
        if self.version:
            lines.append([Segment(self.version, styles["dim"])])
        bar = Segment(BAR, styles["question-bar"])
        rows = rows_of(lines, spans_of(lines, self.texts))
        for row in rows:
            row.bar, row.background = bar, styles["question"]
        return [*rows, Row([])]

    def _attached_lines(self, layout: Layout, collector: TextCollector) -> list[Line]:
        """A line for each attachment, and its text below if it is unfolded."""
        styles, lines = layout.styles, list[Line]()
        self._fold_rows = {}
        for index, attachment in enumerate(self.attachments):
            self._fold_rows[len(lines)] = index
            mark = "▾" if index in self._unfolded else "▸"
            title = set_cell_size(f"{mark} {label(attachment)}", layout.width)
            lines.append([Segment(title.rstrip(), styles["dim"])])
            if index in self._unfolded:
                shown = beginning(attachment.text)
                text = collector.add(Text(shown, styles["quote"], overflow="fold"))
                lines += styles.lines(text, layout.width)
        return lines


def beginning(text: str) -> str:
    """As much of a text as is shown, sanitised, and how much follows."""
    rest = len(text) - MAX_SHOWN_CHARACTERS
    more = f"\n… {rest:,} more characters" if rest > 0 else ""
    return clean(text[:MAX_SHOWN_CHARACTERS]) + more


def label(attachment: Attachment) -> str:
    """`notes.txt · 1.2 KB`, `src/ · 12 files · 34 KB`: what an attachment is, in one line."""
    files = f" · {attachment.files:,} files" if attachment.files > 1 else ""
    return f"{one_line(attachment.name, 60)}{files} · {file_size(attachment.size)}"


def file_size(size: int) -> str:
    """`812 bytes`, `1.2 KB`, `34 MB`."""
    if size < 1000:
        return f"{size} byte{'s' * (size != 1)}"
    value, unit = (size / 1e3, "KB") if size < 999_500 else (size / 1e6, "MB")
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"


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
