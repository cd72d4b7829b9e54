"""."""

from __future__ import annotations

from itertools import zip_longest

from rich.style import Style
from rich.text import Text

from app.conversation.session_statistics import DraftCounts, SessionStatistics
from app.interface.panel import phrases
from app.interface.panel.drawing import PanelStyles
from app.interface.sources import BY_NAME

COLUMNS = ("words", "kept", "would")
"""Heads of the table: share of the words, share of its drafts accepted, share hindsight accepts."""


GAP = 4
"""Columns between them where they stand side by side."""


WIDTH = 6
"""Columns of each of them."""


def detail(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    """Lines of at most `width` columns."""
    return [*_table(figures, width, ink), Text(), *_raw(figures, width, ink)]


def beside(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    """The same in two columns, for screens that are not high."""
    half = (width - GAP) // 2
    lines = []
    pairs = zip_longest(_table(figures, half, ink), _raw(figures, half, ink), fillvalue=Text())
    for left, right in pairs:
        line = Text.assemble(left)
        line.pad_right(half + GAP - line.cell_len)
        lines.append(line + right)
    return lines


def _table(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    """A row for each source that has proposed something in this answer."""
    assert figures.budget_status is not None
    would = figures.budget_status.counterfactual_acceptance
    names = [name for name in BY_NAME if name in figures.tallies or name in would]
    label = width - WIDTH * len(COLUMNS)
    head = Text.assemble(("by source".ljust(label), ink.dim + Style(bold=True)))
    head.append("".join(name.rjust(WIDTH) for name in COLUMNS), style=ink.dim)
    lines = [head]
    for name in names:
        source = BY_NAME[name]
        line = Text.assemble((source.letter, ink.of(source) + Style(bold=True)))
        line.append(f" {source.label}".ljust(label - 1)[: label - 1], style=ink.text)
        for share in (figures.shares.get(name, 0.0), _kept(figures, name), would.get(name)):
            line.append(("–" if share is None else phrases.percent(share)).rjust(WIDTH), ink.text)
        lines.append(line)
    return lines


def _kept(figures: SessionStatistics, name: str) -> float | None:
    tally = figures.tallies.get(name, DraftCounts())
    return tally.accepted / tally.verified if tally.verified else None


def _raw(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    """Counts and times of the answer, label and value to the edges."""
    answer, calls = figures.answer, figures.answer.target_calls
    rows = [("tokens", f"{answer.tokens:,}"), ("calls of the model", f"{calls:,}")]
    rows.append(("drafted · accepted", f"{answer.drafted:,} · {answer.accepted:,}"))
    if calls:
        rows.append(("a call of the model", _milliseconds(answer.target_seconds / calls)))
        rows.append(("drafting a call", _milliseconds(figures.draft_seconds / calls)))
        rows.append(("overhead a call", _milliseconds(answer.overhead_seconds / calls)))
    if answer.first_token_seconds:
        rows.append(("first word after", phrases.duration(answer.first_token_seconds)))
    rows.append(("this session", f"{figures.session.tokens:,} · {phrases.saved(figures)}"))
    if figures.remembered is not None:
        rows.append(("moments remembered", phrases.remembered(figures.remembered)))
    title = Text("this answer" if figures.writing else "last answer", ink.dim + Style(bold=True))
    return [title, *(_row(name, value, width, ink) for name, value in rows)]


def _row(name: str, value: str, width: int, ink: PanelStyles) -> Text:
    line = Text.assemble((name, ink.dim))
    line.pad_right(max(1, width - line.cell_len - len(value)))
    return line + Text(value, style=ink.text)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
