"""The entries of a transcript other than answers: questions and the greeting."""

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
"""Limit of a question, and of an unfolded attachment."""


class Question:
    """A message of the person.

    Attributes:
        message: id of the stored message; None until it is stored.
        version: which of several versions this is, as text.
        attachments: shown on one line each, which unfolds.
        texts: what can be selected, once laid out.
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
        """Fold or unfold the attachment whose title is at `row`; returns whether there is one."""
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
        """One line for each attachment, followed by its text if it is unfolded."""
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
    """The sanitised beginning of a text, and how many characters follow."""
    rest = len(text) - MAX_SHOWN_CHARACTERS
    more = f"\n… {rest:,} more characters" if rest > 0 else ""
    return clean(text[:MAX_SHOWN_CHARACTERS]) + more


def label(attachment: Attachment) -> str:
    """The title of an attachment: `notes.txt · 1.2 KB` or `src/ · 12 files · 34 KB`."""
    files = f" · {attachment.files:,} files" if attachment.files > 1 else ""
    return f"{one_line(attachment.name, 60)}{files} · {file_size(attachment.size)}"


def file_size(size: int) -> str:
    """`812 bytes`, `1.2 KB`, `34 MB`."""
    if size < 1000:
        return f"{size} byte{'s' * (size != 1)}"
    value, unit = (size / 1e3, "KB") if size < 999_500 else (size / 1e6, "MB")
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"


class Greeting:
    """Lines of plain text in an empty chat, the first one as a heading."""

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
