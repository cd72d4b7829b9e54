"""The acceptance panel as three lines, for narrow screens. Pure layout."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from app.conversation.session_statistics import SessionStatistics
from app.interface.panel import phrases
from app.interface.panel.drawing import (
    BarPart,
    PanelStyles,
    lead,
    missed,
    parts,
    share_bar,
    speed,
    speed_bar,
    trend,
)

LABEL = 13
"""Columns of what stands at the left of each line."""

FULL = 40
"""Columns that the bars of all words take together at most."""

SHORTEST, LONGEST = 4, 24
"""Columns of a bar of speed."""

SPEED = len("1,234 tok/s  ")
"""Columns of a speed."""


def footer(figures: SessionStatistics, width: int, ink: PanelStyles) -> list[Text]:
    """Three lines of at most `width` columns."""
    if figures.budget_status is None:
        lines = [Text(line, style=ink.dim) for line in phrases.wrapped(phrases.PROMISE, width)]
        return [*lines, *[Text()] * 3][:3]
    lines = [draw(figures, width, ink) for draw in (_speeds, _words, _drafts)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _speeds(figures: SessionStatistics, width: int, ink: PanelStyles) -> Text:
    line = Text.assemble(lead(figures, ink))
    line.pad_right(max(1, LABEL - line.cell_len))
    labels = ("now " if figures.writing else "last ", "plain ")
    columns = (width - line.cell_len - len("".join(labels)) - 2 * SPEED) // 2
    for label, plain in zip(labels, (False, True), strict=True):
        value = speed(figures, plain, ink)
        line.append(label, style=ink.dim)
        if columns >= SHORTEST:
            line.append_text(speed_bar(figures, plain, min(columns, LONGEST), ink)).append(" ")
        line.append_text(value)
        line.pad_right(max(1, SPEED - 1 - value.cell_len))
    line.rstrip()
    return line


def _words(figures: SessionStatistics, width: int, ink: PanelStyles) -> Text:
    line = _label("words from", ink)
    missing = _missed(figures, ink)
    width -= LABEL + missing.cell_len
    shown = _fitting(parts(figures.shares), width)
    room = min(width - sum(_least(part) for part in shown), FULL)
    for part in shown:
        line.append_text(share_bar(part, 1 + int(part.share * room), ink))
        line.append(f" {part.source.label} ", style=ink.text)
        line.append(f"{phrases.percent(part.share)}  ", style=ink.dim)
    line.rstrip()
    return line.append_text(missing)


def _missed(figures: SessionStatistics, ink: PanelStyles) -> Text:
    """What drafts would have given while they are paused: `  drafts would give T 31%  H 12%`."""
    assert figures.budget_status is not None
    line = Text()
    for part in missed(figures.budget_status)[:2]:
        line.append("  " if line else "  drafts would give ", style=ink.dim)
        line.append(part.source.letter, style=ink.of(part.source) + Style(bold=True))
        line.append(f" {phrases.percent(part.share)}", style=ink.dim)
    return line


def _fitting(all_parts: list[BarPart], width: int) -> list[BarPart]:
    """The largest sources that fit beside their bars; the model alone last, if it fits too."""
    *sources, own = [part for part in all_parts if part.share > 0 or not part.source.name]
    shown: list[BarPart] = []
    for part in (*sources, own):
        if sum(map(_least, (*shown, part))) <= width - FULL // 4 or not shown:
            shown.append(part)
    return shown


def _least(part: BarPart) -> int:
    """Columns that a source takes with the shortest bar."""
    return len(f"X {part.source.label} {phrases.percent(part.share)}  ")


def _drafts(figures: SessionStatistics, width: int, ink: PanelStyles) -> Text:
    assert figures.budget_status is not None
    line = _label("drafts", ink)
    if figures.budget_status.paused:
        line.append(phrases.pause(figures.budget_status), style=ink.warning)
    else:
        line.append(f"{phrases.accepted(figures)} · {phrases.calls(figures)}", style=ink.text)
        history = Text.assemble(("  last 5 min ", ink.dim), trend(figures, ink))
        if line.cell_len + history.cell_len <= width:
            line.append_text(history)
    if line.cell_len + len(ink.hint) + 1 <= width:
        line.pad_right(width - line.cell_len - len(ink.hint))
        line.append(ink.hint, style=ink.dim)
    return line


def _label(text: str, ink: PanelStyles) -> Text:
    return Text.assemble((text.ljust(LABEL), ink.dim))
