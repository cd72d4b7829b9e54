"""The statistics page: charts and tables of a usage report as lines of text.

Sections without data are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import pairwise, zip_longest

from rich.style import Style
from rich.text import Text

from app.figures import amount, format_size, percent
from app.interface.draft_origins import LABELS_BY_NAME
from app.interface.panel.drawing import bar, paragraphs
from app.interface.statistics.column_chart import Column, ColumnPart, Frame, column_chart
from app.interface.statistics.line_chart import MARK, Curve, Mark, line_chart
from app.interface.themes import PanelStyles
from app.interface.wording import duration, short_name, times
from app.sanitise import one_line
from app.usage_report import DraftModelReport, Period, UsageReport
from datastores.chats.usage import Usage
from engines.distillation.versions import Version

CHART_HEIGHT = 6
"""Lines of a chart without its labels."""
MIN_COLUMNS_SIDE_BY_SIDE = 100
"""Width from which two charts or tables are side by side."""
GAP = 4
"""Columns between them."""
NAME_COLUMNS = 20
VALUE_COLUMNS = 10

NOTHING_YET = "No answers yet. Ask something: statistics begin with the first answer."

Draw = Callable[[UsageReport, int, PanelStyles], list[Text]]


def page(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    """The whole page as lines of at most `width` columns."""
    lines: list[Text] = []
    if not report.total.answers:
        lines += [Text(NOTHING_YET, style=styles.dim), Text()]
    else:
        lines += [*_summary(report, width, styles), Text()]
    sections: list[Draw] = [_speed, _tokens, _shares, _origins, _models, _stores]
    for draft_model in report.draft_models:
        sections += [partial(_acceptance, draft_model), partial(_versions, draft_model)]
    sections.append(_halted)
    side_by_side = width >= MIN_COLUMNS_SIDE_BY_SIDE
    room = (width - GAP) // 2 if side_by_side else width
    drawn = [block for draw in sections if (block := draw(report, room, styles))]
    for index in range(0, len(drawn), 2 if side_by_side else 1):
        if side_by_side:
            lines += _joined(drawn[index : index + 2], room)
        else:
            lines += drawn[index]
        lines.append(Text())
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:-1]


def _joined(blocks: Sequence[list[Text]], width: int) -> Iterator[Text]:
    for row in zip_longest(*blocks, fillvalue=Text()):
        line = Text.assemble(row[0])
        for block in row[1:]:
            line.pad_right(width + GAP - line.cell_len)
            line.append_text(block)
        yield line


def _summary(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    """`1.9× the speed without drafts · 41 min saved`, and which answers that covers."""
    usage = report.total
    gains = []
    if usage.plain_seconds:
        faster = usage.ratio > 1
        style = (styles.accent if faster else styles.text) + Style(bold=True)
        gains.append(Text(f"{times(usage.ratio)} the speed without drafts", style=style))
        if faster:
            gains.append(Text(f"{duration(usage.saved_seconds)} saved", style=styles.text))
    steps = "model step" if usage.saved_steps == 1 else "model steps"
    gains.append(Text(f"{usage.saved_steps:,} {steps} saved", style=styles.text))
    answers = amount(usage.answers, "answer")
    since = f"{answers} since {_day(report.periods[0].start, year=True)}"
    notes = [f"{since} · by {'week' if report.days > 1 else 'day'}"]
    if usage.compared_tokens < usage.step_tokens and usage.plain_seconds:
        notes.append("Speed without drafts was not recorded for earlier answers.")
    lines = _flowed(gains, Text(" · ", style=styles.text), width)
    return [*lines, *paragraphs(notes, width, styles.dim)]


def _flowed(parts: Sequence[Text], gap: Text, width: int) -> list[Text]:
    """`parts` with `gap` between them, wrapped to `width` columns."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + gap.cell_len + part.cell_len <= width:
            lines[-1].append_text(gap).append_text(part)
        else:
            lines.append(Text.assemble(part))
    return lines


def _speed(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    columns = [_speed_column(period, styles) for period in report.periods]
    unknown = any(
        period.usage.seconds and not period.usage.compared_seconds for period in report.periods
    )
    legend = [("without drafts", styles.faint), ("gained", styles.accent)]
    if unknown:
        legend.append(("not compared", styles.dim))
    return _chart("Tokens/s", legend, columns, width, styles)


def _speed_column(period: Period, styles: PanelStyles) -> Column:
    """The speed without drafts, and what drafts added."""
    usage = period.usage
    if not usage.compared_seconds:
        return Column(_day(period.start), (ColumnPart(usage.speed, styles.dim),))
    speed = usage.compared_tokens / usage.compared_seconds
    plain = min(usage.plain_speed, speed)
    return Column(
        _day(period.start),
        (ColumnPart(plain, styles.faint), ColumnPart(speed - plain, styles.accent)),
    )


def _tokens(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    legend = [("model steps", styles.faint), ("tokens saved by drafts", styles.accent)]
    columns = [
        Column(
            _day(period.start),
            (
                ColumnPart(period.usage.steps, styles.faint),
                ColumnPart(max(0, period.usage.saved_steps), styles.accent),
            ),
        )
        for period in report.periods
    ]
    return _chart("Tokens", legend, columns, width, styles)


def _shares(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    names = _drafting(report.total)
    legend = [
        (LABELS_BY_NAME[name].letter, styles.of(LABELS_BY_NAME[name]) + Style(bold=True))
        for name in names
    ]
    columns = [
        Column(
            _day(period.start),
            tuple(
                ColumnPart(
                    period.usage.share(name),
                    styles.of(LABELS_BY_NAME[name]),
                    LABELS_BY_NAME[name].texture,
                )
                for name in names
            ),
        )
        for period in report.periods
    ]
    return _chart("Words from drafts", legend, columns, width, styles, share=True)


def _chart(
    title: str,
    legend: Sequence[tuple[str, Style]],
    columns: Sequence[Column],
    width: int,
    styles: PanelStyles,
    *,
    share: bool = False,
) -> list[Text]:
    """A chart under its title and legend; nothing if every column is empty."""
    if not any(column.value for column in columns):
        return []
    head = [Text.assemble((title, styles.text + Style(bold=True)))]
    for name, style in legend:
        marked = [("█ ", style), (name, styles.dim)] if not share else [(name, style)]
        head.append(Text.assemble(*marked))
    frame = Frame(width, CHART_HEIGHT, styles.dim)
    gap = Text(" " if share else "  ")
    return [*_flowed(head, gap, width), *column_chart(columns, frame, percent=share)]


def _origins(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    """For each origin its share of all tokens, and its acceptance rate."""
    names = _drafting(report.total)
    if not names:
        return []
    lines = [_head("Origins", ("of words", "accepted"), width, styles)]
    for name in names:
        origin, share = LABELS_BY_NAME[name], report.total.share(name)
        accepted = report.total.accepted(name)
        line = Text.assemble((origin.letter, styles.of(origin) + Style(bold=True)))
        line.append(f" {origin.label}".ljust(NAME_COLUMNS - 1), style=styles.text)
        room = width - NAME_COLUMNS - 2 * VALUE_COLUMNS
        line.append(bar(share, max(0, room)).ljust(max(0, room)), style=styles.of(origin))
        line.append(percent(share).rjust(VALUE_COLUMNS), style=styles.text)
        line.append(_share(accepted).rjust(VALUE_COLUMNS), style=styles.text)
        lines.append(line)
    return lines


def _models(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    if not report.models:
        return []
    lines = [_head("Models", ("tokens", "tok/s", "without"), width, styles)]
    for model in report.models:
        usage = model.usage
        values = (f"{usage.tokens:,}", _speed_text(usage.speed), _speed_text(usage.plain_speed))
        name = short_name(model.name, max(8, width - VALUE_COLUMNS * len(values) - 1))
        lines.append(_row(name, values, width, styles))
    return lines


def _acceptance(
    draft_model: DraftModelReport, report: UsageReport, width: int, styles: PanelStyles
) -> list[Text]:
    """The curve of the acceptance in real chats, with marks where another version took over."""
    points = draft_model.curve
    if len(points) < 2:
        return []
    head = Text.assemble(("Draft model’s guesses that were right", styles.text + Style(bold=True)))
    marks = [
        Mark(index, f"v{after.version}" if after.version else "original")
        for index, (before, after) in enumerate(pairwise(points), 1)
        if before.version != after.version
    ]
    if points[0].version:
        marks.insert(0, Mark(0, f"v{points[0].version}"))
    if marks:
        head.append(f"  {MARK} version", style=styles.dim)
    days = _day(points[0].day), _day(points[-1].day)
    curve = Curve([point.acceptance for point in points], days, marks)
    frame = Frame(width, CHART_HEIGHT, styles.dim)
    return [head, *line_chart(curve, frame, styles.of(LABELS_BY_NAME["draft-model"]), styles.dim)]


def _versions(
    draft_model: DraftModelReport, report: UsageReport, width: int, styles: PanelStyles
) -> list[Text]:
    """The acceptance of each version on unseen questions before and after, and in real chats."""
    learning = draft_model.learning
    named = f" of {one_line(draft_model.model, NAME_COLUMNS)}" * (len(report.draft_models) > 1)
    lines = [_head(f"Draft model{named}", ("before", "after", "live"), width, styles)]
    lines += [_version(draft_model, version, width, styles) for version in learning.versions]
    if not learning.current:
        live = (_precise(draft_model.live_acceptance(0)),)
        lines.append(_row("original*", live, width, styles))
    size = f" · {format_size(learning.bytes)}" if learning.bytes else ""
    answers = amount(learning.answers, "answer")
    lines.append(Text(f"{answers} to learn from{size}", style=styles.dim))
    if learning.versions:
        legend = "before, after: new questions · live: your chats · * in use"
        lines += paragraphs([legend], width, styles.dim)
    return lines


def _halted(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    if not report.halted:
        return []
    head = _head("Not learning for now", (), width, styles)
    return [head, *paragraphs(report.halted, width, styles.dim)]


def _version(
    draft_model: DraftModelReport, version: Version, width: int, styles: PanelStyles
) -> Text:
    """`v3* · 14 Nov · 84 steps`, and its acceptance."""
    in_use = "*" if version.number == draft_model.learning.current else ""
    name = f"v{version.number}{in_use} · {_day(date.fromtimestamp(version.created))}"
    steps = version.figures.get("steps")
    if steps:
        name += f" · {steps:,.0f} steps"
    before, after = (version.figures.get(key) for key in ("acceptance_before", "acceptance"))
    live = draft_model.live_acceptance(version.number)
    return _row(name, [_precise(share) for share in (before, after, live)], width, styles)


def _stores(report: UsageReport, width: int, styles: PanelStyles) -> list[Text]:
    if not report.stores:
        return []
    total = sum(store.bytes for store in report.stores)
    lines = [_head("On disk", (format_size(total),), width, styles)]
    lines += [
        _row(store.name, (format_size(store.bytes),), width, styles) for store in report.stores
    ]
    return lines


def _head(title: str, values: Sequence[str], width: int, styles: PanelStyles) -> Text:
    line = Text.assemble((title, styles.text + Style(bold=True)))
    line.pad_right(max(1, width - line.cell_len - VALUE_COLUMNS * len(values)))
    return line.append("".join(value.rjust(VALUE_COLUMNS) for value in values), style=styles.dim)


def _row(name: str, values: Sequence[str], width: int, styles: PanelStyles) -> Text:
    room = width - VALUE_COLUMNS * len(values)
    line = Text(one_line(name, max(8, room - 1)), style=styles.text)
    line.pad_right(max(1, room - line.cell_len))
    return line.append("".join(value.rjust(VALUE_COLUMNS) for value in values), style=styles.text)


def _drafting(usage: Usage) -> list[str]:
    """The origins with accepted drafts, in the order of credit."""
    return [name for name in LABELS_BY_NAME if usage.by_origin.get(name)]


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _precise(share: float | None) -> str:
    """A percentage with one decimal, since versions differ little."""
    return "–" if share is None else f"{share:.1%}"


def _speed_text(speed: float) -> str:
    if not speed:
        return "–"
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"


def _day(day: date, *, year: bool = False) -> str:
    """`31 Aug`, in this order in every locale."""
    return f"{day.day} {day:%b %Y}" if year else f"{day.day} {day:%b}"
