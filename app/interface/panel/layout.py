"""The acceptance panel as a column for wide screens, and as a three-line footer for narrow ones.

Pure layout: `phrases.py` owns the words, `drawing.py` the bars.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.renderables.digits import Digits

from app.conversation.session_statistics import SessionStatistics
from app.interface.panel import phrases
from app.interface.panel.details import details
from app.interface.panel.drawing import (
    BarPart,
    PanelStyles,
    counterfactual_parts,
    headline,
    parts_of,
    share_bar,
    speed_bar,
    speed_text,
    stacked_bar,
    trend,
)

COLUMN_LABEL = 12
"""Columns of the labels left of the speed bars."""

LARGE_DIGITS_HEIGHT = 30
"""Rows from which the ratio is written in large digits."""

FOOTER_LABEL = 13
"""Columns of the labels at the left edge of the footer."""

MAX_SHARE_COLUMNS = 40
"""Columns that the bars of all sources take together in the footer."""

MIN_SPEED_BAR, MAX_SPEED_BAR = 4, 24
"""Columns of a speed bar in the footer."""

SPEED_COLUMNS = len("1,234 tok/s  ")


def column(
    stats: SessionStatistics, width: int, height: int, styles: PanelStyles, *, detailed: bool
) -> list[Text]:
    """The panel as lines of at most `width` columns."""
    if stats.budget_status is None:
        return _introduction(width, styles)
    lines = [
        *_large_headline(stats, height, styles),
        Text(),
        *_speed_lines(stats, width, styles),
        Text(),
        *_source_lines(stats, width, styles),
        Text(),
        *_draft_lines(stats, width, styles),
        Text(),
    ]
    if detailed:
        return [*lines, *details(stats, width, styles)]
    tokens = f"{stats.session.tokens:,} tokens · {phrases.saved(stats)}"
    session = [_title("this session", styles), Text(tokens, style=styles.text)]
    return [*lines, *session, Text(), Text(styles.hint, style=styles.dim)]


def footer(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """The panel as three lines of at most `width` columns."""
    if stats.budget_status is None:
        return [*_introduction(width, styles), *[Text()] * 3][:3]
    lines = [draw(stats, width, styles) for draw in (_speed_line, _source_line, _draft_line)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _introduction(width: int, styles: PanelStyles) -> list[Text]:
    lines = phrases.wrapped(phrases.INTRODUCTION, width)
    return [Text(line, style=styles.dim) for line in lines]


def _large_headline(stats: SessionStatistics, height: int, styles: PanelStyles) -> list[Text]:
    """The headline; a ratio above 1 in large digits where there is room."""
    faster = phrases.is_faster(stats.current)
    if height < LARGE_DIGITS_HEIGHT or not faster or stats.budget_status is None:
        return [headline(stats, styles)]
    number = phrases.mark(stats.budget_status) + phrases.times(stats.current.ratio)
    style = styles.accent + Style(bold=True)
    drawn = Digits(number.replace("×", "x").replace("~", "")).render(style)
    rows = [part.text for part in drawn if isinstance(part, Segment) and part.text != "\n"]
    lines = [Text.assemble((row.rstrip(), style)) for row in rows]
    lines[-1].append(" faster", style=styles.text)
    if number.startswith("~"):
        lines[-1].append(" (estimate)", style=styles.dim)
    return lines


def _speed_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    columns = width - COLUMN_LABEL - len(" ~1,234 tok/s")
    lines = []
    for plain, label in _speeds(stats):
        line = _label(label, COLUMN_LABEL, styles)
        line.append_text(speed_bar(stats, plain, columns, styles))
        lines.append(_justified(line, speed_text(stats, plain, styles), width))
    return [*lines, Text()][:2]  # two lines, so that nothing below moves


def _speed_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = Text.assemble(headline(stats, styles))
    line.pad_right(max(1, FOOTER_LABEL - line.cell_len))
    speeds = _speeds(stats)
    labels = "".join(f"{label} " for _, label in speeds)
    columns = (width - line.cell_len - len(labels) - len(speeds) * SPEED_COLUMNS) // len(speeds)
    for plain, label in speeds:
        value = speed_text(stats, plain, styles)
        line.append(f"{label} ", style=styles.dim)
        if columns >= MIN_SPEED_BAR:
            bar = speed_bar(stats, plain, min(columns, MAX_SPEED_BAR), styles)
            line.append_text(bar).append(" ")
        line.append_text(value)
        line.pad_right(max(1, SPEED_COLUMNS - 1 - value.cell_len))
    line.rstrip()
    return line


def _speeds(stats: SessionStatistics) -> list[tuple[bool, str]]:
    """The speeds to show, each with whether it is the plain one: only one while drafting is off."""
    assert stats.budget_status is not None
    if stats.budget_status.paused and not phrases.is_faster(stats.current):
        return [(False, "speed")]
    return [(False, "with drafts"), (True, "without")]


def _source_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    lines = [_title("words from", styles), stacked_bar(stats, width, styles)]
    return lines + [_share_line(part, width, styles) for part in parts_of(stats.shares)]


def _source_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = _label("words from", FOOTER_LABEL, styles)
    counterfactual = _counterfactual(stats, styles)
    width -= FOOTER_LABEL + counterfactual.cell_len
    shown = _fitting(parts_of(stats.shares), width)
    columns = min(width - sum(_min_columns(part) for part in shown), MAX_SHARE_COLUMNS)
    for part in shown:
        line.append_text(share_bar(part, 1 + int(part.share * columns), styles))
        line.append(f" {part.source.label} ", style=styles.text)
        line.append(f"{phrases.percent(part.share)}  ", style=styles.dim)
    line.rstrip()
    return line.append_text(counterfactual)


def _counterfactual(stats: SessionStatistics, styles: PanelStyles) -> Text:
    """While drafting is paused: `  drafts would have supplied T 31%  H 12%`."""
    assert stats.budget_status is not None
    line = Text()
    for part in counterfactual_parts(stats.budget_status)[:2]:
        line.append("  " if line else "  drafts would have supplied ", style=styles.dim)
        line.append_text(_letter(part, styles))
        line.append(f" {phrases.percent(part.share)}", style=styles.dim)
    return line


def _fitting(all_parts: list[BarPart], width: int) -> list[BarPart]:
    """The largest sources that fit with their bars; the model alone last, if it fits too."""
    *sources, own = [part for part in all_parts if part.share > 0 or not part.source.name]
    shown: list[BarPart] = []
    for part in (*sources, own):
        columns = sum(map(_min_columns, (*shown, part)))
        if columns <= width - MAX_SHARE_COLUMNS // 4 or not shown:
            shown.append(part)
    return shown


def _min_columns(part: BarPart) -> int:
    """Columns that a source takes with the shortest bar."""
    return len(f"X {part.source.label} {phrases.percent(part.share)}  ")


def _draft_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    assert stats.budget_status is not None
    lines = [_title("drafts", styles)]
    if stats.budget_status.paused:
        paused = phrases.wrapped(phrases.pause(stats.budget_status), width)
        lines += [Text(line, style=styles.warning) for line in paused]
        if parts := counterfactual_parts(stats.budget_status)[:3]:
            lines.append(Text("drafts would have supplied", style=styles.dim))
            lines += [_share_line(part, width, styles) for part in parts]
    lines += [
        Text(phrases.accepted(stats), style=styles.text),
        Text(phrases.calls(stats), style=styles.text),
        Text.assemble(("last 5 min ", styles.dim), trend(stats, styles)),
    ]
    return lines


def _draft_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    assert stats.budget_status is not None
    line = _label("drafts", FOOTER_LABEL, styles)
    if stats.budget_status.paused:
        line.append(phrases.pause(stats.budget_status), style=styles.warning)
    else:
        line.append(f"{phrases.accepted(stats)} · {phrases.calls(stats)}", style=styles.text)
        history = Text.assemble(("  5 min ", styles.dim), trend(stats, styles))
        if line.cell_len + history.cell_len <= width:
            line.append_text(history)
    if line.cell_len + len(styles.hint) + 1 <= width:
        line = _justified(line, Text(styles.hint, style=styles.dim), width)
    return line


def _share_line(part: BarPart, width: int, styles: PanelStyles) -> Text:
    """A source, and its share at the right edge."""
    line = Text.assemble(_letter(part, styles), (f" {part.source.label}", styles.text))
    return _justified(line, Text(phrases.percent(part.share), style=styles.dim), width)


def _letter(part: BarPart, styles: PanelStyles) -> Text:
    return Text.assemble((part.source.letter, styles.of(part.source) + Style(bold=True)))


def _justified(line: Text, end: Text, width: int) -> Text:
    """`line` with `end` at the right edge."""
    line.pad_right(width - line.cell_len - end.cell_len)
    return line.append_text(end)


def _label(text: str, columns: int, styles: PanelStyles) -> Text:
    return Text.assemble((text.ljust(columns), styles.dim))


def _title(text: str, styles: PanelStyles) -> Text:
    return Text(text, style=styles.dim + Style(bold=True))
