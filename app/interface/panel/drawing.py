"""The bars, sparklines and styles of the acceptance panel; each function makes one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app.conversation.session_statistics import SessionStatistics
from app.figures import format_speed
from app.interface.draft_origins import LABELS_BY_NAME, MODEL_LABEL, OriginLabel
from app.interface.panel import phrases
from app.interface.themes import PanelStyles
from app.interface.wording import wrapped

NO_VALUE = "·"
"""Character of a sparkline without a value."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class BarPart:
    """An origin, its share of the answer, and the share as text."""

    origin: OriginLabel
    share: float
    percent: str


def parts_of(shares: Mapping[str, float]) -> list[BarPart]:
    """The origins, largest first, and last the model itself."""
    known = sorted(shares.items(), key=lambda item: -item[1])
    return _parts([*known, (MODEL_LABEL.name, max(0.0, 1 - sum(shares.values())))])


def ready_parts(stats: SessionStatistics) -> list[BarPart]:
    """The origins whose drafts, verified or not, contained the answer's tokens, largest first.

    Each token counts for one origin, so that the shares add up.
    """
    return _parts(sorted(stats.possible.items(), key=lambda item: -item[1]))


def _parts(shares: Sequence[tuple[str, float]]) -> list[BarPart]:
    labels = {**LABELS_BY_NAME, MODEL_LABEL.name: MODEL_LABEL}
    shown = phrases.percents([share for _, share in shares])
    return [
        BarPart(labels[name], share, percent)
        for (name, share), percent in zip(shares, shown, strict=True)
    ]


def headline(stats: SessionStatistics, styles: PanelStyles) -> Text:
    """`2.3× faster`, or only the speed if no draft was accepted."""
    assert stats.budget_status is not None
    if phrases.is_unaided(stats):
        return Text(phrases.own_speed(stats.current), style=styles.text + Style(bold=True))
    style = styles.accent if phrases.is_faster(stats.current) else styles.text
    ratio = phrases.ratio(stats.current, stats.budget_status, writing=stats.writing)
    return Text(ratio, style=style + Style(bold=True))


def speed_bar(stats: SessionStatistics, plain: bool, width: int, styles: PanelStyles) -> Text:
    """The bar of the speed without or with drafts, on one scale, `width` columns wide."""
    throughput = stats.current
    without = throughput.plain_speed if phrases.is_comparable(throughput) else 0.0
    fastest = max(throughput.speed, without) or 1.0
    share = (without if plain else throughput.speed) / fastest
    text = Text.assemble((bar(share, width), styles.faint if plain else styles.accent))
    text.pad_right(width - text.cell_len)
    return text


def speed_text(stats: SessionStatistics, plain: bool, styles: PanelStyles) -> Text:
    """`41 tok/s`, `~18 tok/s`; `–` before the first step and for a speed not comparable."""
    assert stats.budget_status is not None
    if not stats.current.tokens or (plain and not phrases.is_comparable(stats.current)):
        return Text("–", style=styles.dim)
    if not plain:
        return Text(format_speed(stats.current.speed), style=styles.text)
    mark = phrases.mark(stats.budget_status)
    return Text(mark + format_speed(stats.current.plain_speed), style=styles.text)


def share_bar(part: BarPart, columns: int, styles: PanelStyles) -> Text:
    """`P▓▓▓▓`: letter and texture in the colour of the origin."""
    origin, style = part.origin, styles.of(part.origin)
    letter = (origin.letter, style + Style(bold=True))
    return Text.assemble(letter, (origin.texture * (columns - 1), style))


def stacked_bar(parts: Sequence[BarPart], width: int, styles: PanelStyles) -> Text:
    """All origins in one bar; `width` columns stand for a share of 1."""
    shown = [part for part in parts if part.share > 0]
    columns = allocate_columns([part.share for part in shown], width)
    joined = Text("").join(
        share_bar(part, count, styles) for part, count in zip(shown, columns, strict=True)
    )
    joined.truncate(width)
    return joined


def trend(stats: SessionStatistics, styles: PanelStyles) -> Text:
    """A sparkline of tokens per step over the last minutes, from one token per step."""
    line = Text()
    for level in sparkline(stats.trend(), floor=1.0):
        line.append(level, style=styles.faint if level == NO_VALUE else styles.accent)
    return line


def paragraphs(texts: Iterable[str], width: int, style: Style) -> list[Text]:
    """The lines of all `texts`, each wrapped to `width` columns."""
    return [Text(line, style=style) for text in texts for line in wrapped(text, width)]


def bar(share: float, width: int) -> str:
    """A bar over `share` (0 to 1) of `width` columns, exact to an eighth; empty only for 0."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, part = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[part].strip()


def sparkline(values: Sequence[float], floor: float) -> str:
    """One character for each value, from `floor` to the largest; `NO_VALUE` for 0."""
    top = max([*values, floor * 2])
    return "".join(
        _level((value - floor) / (top - floor)) if value else NO_VALUE for value in values
    )


def _level(share: float) -> str:
    return LEVELS[min(max(int(share * len(LEVELS)), 0), len(LEVELS) - 1)]


def allocate_columns(shares: Sequence[float], width: int) -> list[int]:
    """Divide `width` columns by `shares`, at least one column each.

    Largest remainder method: the columns left by rounding down go to the largest remainders.
    """
    exact = [share * width for share in shares]
    columns = [max(1, int(value)) for value in exact]
    left = round(sum(exact)) - sum(columns)
    by_need = sorted(range(len(exact)), key=lambda index: columns[index] - exact[index])
    for index in by_need[: max(left, 0)]:
        columns[index] += 1
    return columns
