"""The detailed figures of the acceptance panel, as lines of text."""

from __future__ import annotations

from itertools import zip_longest

from rich.style import Style
from rich.text import Text

from app.conversation.session_statistics import SessionStatistics
from app.figures import percent
from app.interface.draft_origins import LABELS_BY_NAME
from app.interface.panel import phrases
from app.interface.panel.drawing import paragraphs, parts_of, ready_parts
from app.interface.themes import PanelStyles
from app.interface.wording import duration, short_name

HEADINGS = ("share", "accepted", "possible")
"""Columns of the table, for each origin: share of the answer's tokens, share of its verified drafts
that was accepted, and share of the tokens had every draft been verified."""

GAP = 4
"""Columns between the table and the figures when they are side by side."""

MIN_TABLE_COLUMNS = 34
"""Width of the narrowest table or list of figures."""

SHARE_COLUMNS = 5
"""Width of each share in the table."""


def details(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """The table and the figures below it, as lines of at most `width` columns."""
    return [*_table(stats, width, styles), Text(), *_figures(stats, width, styles)]


def details_side_by_side(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """The figures to the right of the table, or below it if the width is too small."""
    half = (width - GAP) // 2
    if half < MIN_TABLE_COLUMNS:
        return details(stats, width, styles)
    table, figures = _table(stats, half, styles), _figures(stats, half, styles)
    lines = []
    for left, right in zip_longest(table, figures, fillvalue=Text()):
        line = Text.assemble(left)
        line.pad_right(half + GAP - line.cell_len)
        lines.append(line + right)
    return lines


def _table(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """One row for each origin that has proposed drafts in this answer."""
    held = {part.origin.name: part.percent for part in parts_of(stats.shares)}
    possible = {part.origin.name: part.percent for part in ready_parts(stats)}
    proposed = {*stats.answer.drafted_by_origin, *possible}
    names = [name for name in LABELS_BY_NAME if name in proposed]
    label = width - SHARE_COLUMNS * len(HEADINGS)
    headings = "/".join(HEADINGS)  # one heading per column would leave no room for the labels
    title = "by origin".ljust(width - len(headings))
    head = Text.assemble((title, styles.dim + Style(bold=True)), (headings, styles.dim))
    lines = [head]
    for name in names:
        origin = LABELS_BY_NAME[name]
        line = Text.assemble((origin.letter, styles.of(origin) + Style(bold=True)))
        line.append(f" {origin.label}".ljust(label - 1)[: label - 1], style=styles.text)
        for text in (held.get(name, "0%"), _accepted(stats, name), possible.get(name, "–")):
            line.append(text.rjust(SHARE_COLUMNS), styles.text)
        lines.append(line)
    return lines


def _accepted(stats: SessionStatistics, name: str) -> str:
    """The share of an origin's verified drafts that was accepted; `–` if none was verified."""
    drafted = stats.answer.drafted_by_origin.get(name)
    return percent(stats.answer.by_origin.get(name, 0) / drafted) if drafted else "–"


def _figures(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """Counts and times of the answer, labels on the left, values on the right."""
    answer, steps = stats.answer, stats.answer.steps
    rows = [("tokens", f"{answer.tokens:,}"), ("model steps", f"{steps:,}")]
    rows.append(("drafted · accepted", f"{answer.longest_drafted:,} · {answer.accepted:,}"))
    if steps:
        rows.append(("time per step", _milliseconds(answer.target_seconds / steps)))
        rows.append(("drafting per step", _milliseconds(stats.draft_seconds / steps)))
        rows.append(("overhead per step", _milliseconds(answer.overhead_seconds / steps)))
    if answer.first_token_seconds:
        rows.append(("time to first word", duration(answer.first_token_seconds)))
    rows.append(("this session", f"{stats.session_tokens:,} · {phrases.saved(stats)}"))
    if stats.dense_states is not None:
        rows.append(("contexts indexed", phrases.dense_states(stats.dense_states)))
    if stats.draft_model:
        rows.append(("draft model", short_name(stats.draft_model, width - len("draft model "))))
    if figures := phrases.draft_model_figures(stats):
        rows.append(("its guesses", figures))
    if stats.learned_share is not None:
        rows.append(("learning", percent(stats.learned_share)))
    waits = [stats.learning_waits] if stats.learned_share is None else []
    title = Text("this answer" if stats.writing else "last answer", styles.dim + Style(bold=True))
    lines = [_row(name, value, width, styles) for name, value in rows]
    return [title, *lines, *paragraphs(waits, width, styles.dim)]


def _row(name: str, value: str, width: int, styles: PanelStyles) -> Text:
    line = Text.assemble((name, styles.dim))
    line.truncate(max(0, width - len(value) - 1), overflow="ellipsis")
    line.pad_right(max(1, width - line.cell_len - len(value)))
    return line + Text(value, style=styles.text)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
