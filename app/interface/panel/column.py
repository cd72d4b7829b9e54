"""The acceptance panel as a column, for wide screens. Pure layout."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.renderables.digits import Digits

from app.conversation.session_statistics import SessionStatistics
from app.interface.panel import phrases
from app.interface.panel.details import detail
from app.interface.panel.drawing import (
    BarPart,
    PanelStyles,
    lead,
    missed,
    parts,
    speed,
    speed_bar,
    stacked_bar,
    trend,
)
from engines.budget.protocol import BudgetStatus

ROOMY = 30
"""Rows from which the lead is written in large digits."""

LABEL = 7
"""Columns of the words beside the bars of speed."""


def column(
    figures: SessionStatistics, width: int, height: int, ink: PanelStyles, *, detailed: bool
) -> list[Text]:
    """Lines of at most `width` columns."""
    if figures.budget_status is None:
        return [Text(line, style=ink.dim) for line in phrases.wrapped(phrases.PROMISE, width)]
    lines = [
        *_lead(figures, height, ink),
        Text(),
        *_speeds(figures, width, ink),
        Text(),
        *_words(figures, width, ink),
        Text(),
        *_drafts(figures, width, ink),
    ]
    if detailed:
        return [*lines, Text(), *detail(figures, width, ink)]
    return [*lines, Text(), *_session(figures, ink), Text(), Text(ink.hint, style=ink.dim)]


def _lead(figures: SessionStatistics, height: int, ink: PanelStyles) -> list[Text]:
    """The ratio; in large digits where there is room and something to be proud of."""
    pace = figures.now
    if height < ROOMY or not phrases.is_faster(pace) or figures.budget_status is None:
        return [lead(figures, ink)]
    number = phrases.mark(figures.budget_status) + phrases.times(pace.ratio)
    style = ink.accent + Style(bold=True)
    drawn = Digits(number.replace("×", "x").replace("~", "")).render(style)
    rows = [part.text for part in drawn if isinstance(part, Segment) and part.text != "\n"]
    lines = [Text.assemble((row.rstrip(), style)) for row in rows]
    lines[-1].append(" faster", style=ink.text)
    if number.startswith("~"):
        lines[-1].append(" (estimate)", style=ink.dim)
    return lines


def _speeds(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    columns = width - LABEL - len(" ~1,234 tok/s")
    lines = []
    for plain, label in ((False, "now" if figures.writing else "last"), (True, "plain")):
        line = Text.assemble((label.ljust(LABEL), ink.dim))
        line.append_text(speed_bar(figures, plain, columns, ink))
        value = speed(figures, plain, ink)
        line.pad_right(width - columns - LABEL - value.cell_len)
        lines.append(line + value)
    return lines


def _words(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    lines = [_title("words from", ink), stacked_bar(figures, width, ink)]
    return lines + [_row(part, width, ink) for part in parts(figures.shares)]


def _row(part: BarPart, width: int, ink: PanelStyles) -> Text:
    """A source and its share, to the edges."""
    letter = (part.source.letter, ink.of(part.source) + Style(bold=True))
    line = Text.assemble(letter, (f" {part.source.label}", ink.text))
    share = phrases.percent(part.share)
    line.pad_right(width - line.cell_len - len(share))
    return line + Text(share, style=ink.dim)


def _missed(budget_status: BudgetStatus, width: int, ink: PanelStyles) -> list[Text]:
    """What drafts would have given while they are paused."""
    rows = [_row(part, width, ink) for part in missed(budget_status)[:3]]
    return [Text("they would have given", style=ink.dim), *rows] if rows else []


def _drafts(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    assert figures.budget_status is not None
    lines = [_title("drafts", ink)]
    if figures.budget_status.paused:
        paused = phrases.wrapped(phrases.pause(figures.budget_status), width)
        lines += [Text(line, style=ink.warning) for line in paused]
        lines += _missed(figures.budget_status, width, ink)
    lines += [
        Text(phrases.accepted(figures), style=ink.text),
        Text(phrases.calls(figures), style=ink.text),
        Text.assemble(("last 5 min ", ink.dim), trend(figures, ink)),
    ]
    return lines


def _session(figures: SessionStatistics, ink: PanelStyles) -> list[Text]:
    tokens = f"{figures.session.tokens:,} tokens · {phrases.saved(figures)}"
    return [_title("this session", ink), Text(tokens, style=ink.text)]


def _title(text: str, ink: PanelStyles) -> Text:
    return Text(text, style=ink.dim + Style(bold=True))
