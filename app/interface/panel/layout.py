"""The acceptance panel as a column for wide screens, and as a footer of few lines for narrow ones.

The words are in `phrases.py`, the bars in `drawing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.renderables.digits import Digits

from app.conversation.session_statistics import SessionStatistics
from app.figures import percent
from app.interface.panel import phrases
from app.interface.panel.details import details
from app.interface.panel.drawing import (
    BarPart,
    headline,
    paragraphs,
    parts_of,
    ready_parts,
    share_bar,
    speed_bar,
    speed_text,
    stacked_bar,
    trend,
)
from app.interface.themes import PanelStyles
from app.interface.wording import times
from engines.ralm.events import RalmStatistics

COLUMN_LABEL = 12
"""Width of the labels left of the speed bars."""

LARGE_DIGITS_HEIGHT = 30
"""Height from which the ratio is written in large digits."""

FOOTER_LABEL = 13
"""Width of the labels at the left edge of the footer."""

MAX_SHARE_COLUMNS = 40
"""Width of the bars of all origins together in the footer."""

MIN_SPEED_BAR, MAX_SPEED_BAR = 4, 24
"""Width of a speed bar in the footer."""

SPEED_COLUMNS = len("1,234 tok/s  ")

SPEEDS = ((False, "with drafts"), (True, "without"))
"""The compared speeds: whether it is without drafts, and its label."""

READY, READY_SHORT = "drafts would have supplied", "possible"
"""Title and footer label of the shares that drafts contained while none was accepted."""
NOTHING_READY = "nothing yet; chats and imports help"


def column(
    stats: SessionStatistics, width: int, height: int, styles: PanelStyles, *, detailed: bool
) -> list[Text]:
    """The panel as lines of at most `width` columns."""
    if stats.budget_status is None:
        return _introduction(width, styles)
    unaided = phrases.is_unaided(stats)
    lines = [
        *_large_headline(stats, height, styles),
        Text(),
        *(_unaided_lines if unaided else _speed_lines)(stats, width, styles),
        Text(),
        *(_ready_lines if unaided else _origin_lines)(stats, width, styles),
        Text(),
        *_draft_lines(stats, styles),
        Text(),
        *_passage_lines(stats, width, styles),
    ]
    if detailed:
        lines += details(stats, width, styles)
        return lines if len(lines) <= height else [line for line in lines if line]
    tokens = f"{stats.session_tokens:,} tokens · {phrases.saved(stats)}"
    session = [_title("this session", styles), Text(tokens, style=styles.text)]
    small = _draft_model_lines(stats, width, styles)
    return [*lines, *small, *session, Text(), Text(styles.hint, style=styles.dim)]


def footer(
    stats: SessionStatistics, width: int, styles: PanelStyles, *, short: bool = False
) -> list[Text]:
    """The panel as three lines of at most `width` columns, and a fourth for retrieval.

    Args:
        short: only the first line, and none before the first answer.
    """
    if stats.budget_status is None:
        return [] if short else [*_introduction(width, styles), *[Text()] * 3][:3]
    if phrases.is_unaided(stats):
        draw = (_unaided_line, _ready_line, _advice_line)
    else:
        draw = (_speed_line, _origin_line, _draft_line)
    lines = [line(stats, width, styles) for line in (draw[:1] if short else draw)]
    if stats.retrieval is not None and not short:
        lines.append(_passage_line(stats.retrieval, styles))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _introduction(width: int, styles: PanelStyles) -> list[Text]:
    return paragraphs([phrases.INTRODUCTION], width, styles.dim)


def _large_headline(stats: SessionStatistics, height: int, styles: PanelStyles) -> list[Text]:
    """The headline; a speed-up in large digits if there is room."""
    faster = phrases.is_faster(stats.current)
    if height < LARGE_DIGITS_HEIGHT or not faster or stats.budget_status is None:
        return [headline(stats, styles)]
    number = phrases.mark(stats.budget_status) + times(stats.current.ratio)
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
    for plain, label in SPEEDS:
        line = _label(label, COLUMN_LABEL, styles)
        line.append_text(speed_bar(stats, plain, columns, styles))
        lines.append(_justified(line, speed_text(stats, plain, styles), width))
    return lines


def _unaided_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    remark = f"{phrases.UNAIDED} {phrases.advice(stats, styles.larger)}"
    return paragraphs([remark], width, styles.dim)


def _speed_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = Text.assemble(headline(stats, styles))
    line.pad_right(max(1, FOOTER_LABEL - line.cell_len))
    labels = "".join(f"{label} " for _, label in SPEEDS)
    columns = (width - line.cell_len - len(labels) - 2 * SPEED_COLUMNS) // 2
    speeds = []
    for plain, label in SPEEDS:
        speed = Text.assemble((f"{label} ", styles.dim))
        if columns >= MIN_SPEED_BAR:
            bar = speed_bar(stats, plain, min(columns, MAX_SPEED_BAR), styles)
            speed.append_text(bar).append(" ")
        value = speed_text(stats, plain, styles)
        speed.append_text(value).pad_right(max(1, SPEED_COLUMNS - 1 - value.cell_len))
        speeds.append(speed)
    compared = speeds[0] + speeds[1]
    compared.rstrip()
    speeds[0].rstrip()  # the speed without drafts says nothing by itself
    fitting = next((one for one in (compared, speeds[0]) if line.cell_len + len(one) <= width), "")
    return line + fitting


def _unaided_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = Text.assemble(headline(stats, styles))
    line.pad_right(max(1, FOOTER_LABEL - line.cell_len))
    return line.append(phrases.UNAIDED, style=styles.dim)


def _advice_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = _label("drafts", FOOTER_LABEL, styles)
    line.append(phrases.advice(stats, styles.larger), style=styles.dim)
    return _with_hint(line, width, styles)


def _origin_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    parts = parts_of(stats.shares)
    lines = [_title("words from", styles), stacked_bar(parts, width, styles)]
    return lines + [_share_line(part, width, styles) for part in parts]


def _ready_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """What unused drafts contained, which grows with chats and imports."""
    parts = ready_parts(stats)
    share = Text(percent(sum(part.share for part in parts)), style=styles.dim)
    title = _justified(_title(READY, styles), share, width)
    if not parts:
        return [title, *paragraphs([NOTHING_READY], width, styles.dim)]
    lines = [_share_line(part, width, styles) for part in parts]
    return [title, stacked_bar(parts, width, styles), *lines]


def _origin_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    parts = parts_of(stats.shares)
    return _parts_line(_label("words from", FOOTER_LABEL, styles), parts, width, styles)


def _ready_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = _label(READY_SHORT, FOOTER_LABEL, styles)
    parts = ready_parts(stats)
    if not parts:
        return line.append(NOTHING_READY, style=styles.dim)
    return _parts_line(line, parts, width, styles)


def _parts_line(line: Text, parts: list[BarPart], width: int, styles: PanelStyles) -> Text:
    """`line` followed by the largest of `parts`, each with its bar."""
    width -= line.cell_len
    shown = _fitting(parts, width)
    columns = min(width - sum(_min_columns(part) for part in shown), MAX_SHARE_COLUMNS)
    for part in shown:
        line.append_text(share_bar(part, 1 + int(part.share * columns), styles))
        line.append(f" {part.origin.label} ", style=styles.text)
        line.append(f"{part.percent}  ", style=styles.dim)
    line.rstrip()
    return line


def _fitting(all_parts: list[BarPart], width: int) -> list[BarPart]:
    """The largest origins that fit with their bars; those with nothing are left out."""
    shown = [part for part in all_parts if part.share > 0 or not part.origin.name]
    while len(shown) > 1 and sum(map(_min_columns, shown)) > width - MAX_SHARE_COLUMNS // 4:
        shown.remove(min(shown, key=lambda part: (part.share, bool(part.origin.name))))
    return shown


def _min_columns(part: BarPart) -> int:
    """Width of an origin with the shortest bar."""
    return len(f"X {part.origin.label} {part.percent}  ")


def _draft_lines(stats: SessionStatistics, styles: PanelStyles) -> list[Text]:
    return [
        _title("drafts", styles),
        Text(phrases.accepted(stats), style=styles.text),
        Text(phrases.tokens_per_step(stats), style=styles.text),
        Text.assemble(("last 5 min ", styles.dim), trend(stats, styles)),
    ]


def _passage_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """Speculative retrieval, in answers that retrieve while they are generated."""
    if stats.retrieval is None:
        return []
    figures = (
        phrases.guessed_passages(stats.retrieval),
        phrases.cache_hits(stats.retrieval),
        phrases.strides(stats.retrieval),
        phrases.search_saved(stats.retrieval),
    )
    return [_title("passages", styles), *paragraphs(figures, width, styles.text), Text()]


def _passage_line(retrieval: RalmStatistics, styles: PanelStyles) -> Text:
    figures = (
        phrases.guessed_passages(retrieval),
        phrases.strides(retrieval),
        phrases.search_saved(retrieval),
        phrases.cache_hits(retrieval),
    )
    return _label("passages", FOOTER_LABEL, styles).append(" · ".join(figures), style=styles.text)


def _draft_model_lines(stats: SessionStatistics, width: int, styles: PanelStyles) -> list[Text]:
    """The draft model and its training; without one, the training of the draft head."""
    draft_model, training = phrases.draft_model(stats), phrases.training(stats)
    if not draft_model and not training:
        return []
    title = _title("draft model" if draft_model else "learning", styles)
    return [title, *paragraphs((draft_model, training), width, styles.text), Text()]


def _draft_line(stats: SessionStatistics, width: int, styles: PanelStyles) -> Text:
    line = _label("drafts", FOOTER_LABEL, styles)
    line.append(phrases.accepted(stats), style=styles.text)
    steps = Text(f" · {phrases.tokens_per_step(stats)}", style=styles.text)
    history = Text.assemble(("  5 min ", styles.dim), trend(stats, styles))
    draft_model = phrases.draft_model_figures(stats)  # the top bar shows its training
    small = Text.assemble(("  draft model ", styles.dim), (draft_model, styles.text))
    more = (steps, history, small) if draft_model else (steps, history)
    return _with_hint(_with_fitting(line, more, width), width, styles)


def _with_fitting(line: Text, parts: Iterable[Text], width: int) -> Text:
    """`line` followed by those of `parts` that fit into `width` columns."""
    for part in parts:
        if line.cell_len + part.cell_len <= width:
            line.append_text(part)
    return line


def _with_hint(line: Text, width: int, styles: PanelStyles) -> Text:
    """`line` with the key for details at the right edge, if it fits."""
    if line.cell_len + len(styles.hint) + 1 <= width:
        line = _justified(line, Text(styles.hint, style=styles.dim), width)
    return line


def _share_line(part: BarPart, width: int, styles: PanelStyles) -> Text:
    """An origin, and its share at the right edge."""
    letter = (part.origin.letter, styles.of(part.origin) + Style(bold=True))
    line = Text.assemble(letter, (f" {part.origin.label}", styles.text))
    return _justified(line, Text(part.percent, style=styles.dim), width)


def _justified(line: Text, end: Text, width: int) -> Text:
    """`line` with `end` at the right edge."""
    line.pad_right(width - line.cell_len - end.cell_len)
    return line.append_text(end)


def _label(text: str, columns: int, styles: PanelStyles) -> Text:
    return Text.assemble((text.ljust(columns), styles.dim))


def _title(text: str, styles: PanelStyles) -> Text:
    return Text(text, style=styles.dim + Style(bold=True))
