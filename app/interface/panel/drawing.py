"""Bars and sparklines out of characters. Pure functions; no colours, no widgets.

What the acceptance panel is drawn with: styles, colours, and the parts its forms share.

Knows Rich only. Each function makes one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app.conversation.session_statistics import SessionStatistics
from app.interface.panel import phrases
from app.interface.sources import BY_NAME, OWN, SourceLabel
from engines.budget.protocol import BudgetStatus


@dataclass(frozen=True, slots=True)
class PanelStyles:
    """Styles on a `dark` background or a light one, and the `hint` that stands at the end."""

    text: Style
    dim: Style
    faint: Style
    accent: Style
    warning: Style
    dark: bool
    hint: str = ""

    def of(self, source: SourceLabel) -> Style:
        """The colour of a source."""
        return Style(color=source.color(dark=self.dark))


@dataclass(frozen=True, slots=True)
class BarPart:
    """A source and its share of the answer."""

    source: SourceLabel
    share: float


def parts(shares: Mapping[str, float]) -> list[BarPart]:
    """The sources, largest first, and at the end what the model wrote alone."""
    known = [BarPart(BY_NAME[name], share) for name, share in shares.items()]
    known.sort(key=lambda part: -part.share)
    return [*known, BarPart(OWN, max(0.0, 1 - sum(shares.values())))]


def missed(budget_status: BudgetStatus) -> list[BarPart]:
    """While drafting is paused: the sources whose drafts would have been accepted, best first."""
    shares = budget_status.counterfactual_acceptance.items() if budget_status.paused else ()
    would = [BarPart(BY_NAME[name], share) for name, share in shares if share > 0]
    return sorted(would, key=lambda part: -part.share)


def lead(figures: SessionStatistics, ink: PanelStyles) -> Text:
    """`2.3× faster`."""
    assert figures.budget_status is not None
    style = ink.accent if phrases.is_faster(figures.now) else ink.text
    return Text(phrases.ratio(figures.now, figures.budget_status), style=style + Style(bold=True))


def speed_bar(figures: SessionStatistics, plain: bool, width: int, ink: PanelStyles) -> Text:
    """One of the two bars, `width` columns wide, on the scale that both share."""
    pace = figures.now
    fastest = max(pace.speed, pace.plain_speed) or 1.0
    share = (pace.plain_speed if plain else pace.speed) / fastest
    text = Text.assemble((bar(share, width), ink.faint if plain else ink.accent))
    text.pad_right(width - text.cell_len)
    return text


def speed(figures: SessionStatistics, plain: bool, ink: PanelStyles) -> Text:
    """`41 tok/s`, `~18 tok/s`."""
    assert figures.budget_status is not None
    pace = figures.now
    if not plain:
        return Text(phrases.speed(pace.speed), style=ink.text)
    return Text(
        phrases.mark(figures.budget_status) + phrases.speed(pace.plain_speed), style=ink.text
    )


def share_bar(part: BarPart, columns: int, ink: PanelStyles) -> Text:
    """`P▓▓▓▓`: letter and texture in the colour of the source."""
    source, style = part.source, ink.of(part.source)
    letter = (source.letter, style + Style(bold=True))
    return Text.assemble(letter, (source.texture * (columns - 1), style))


def stacked_bar(figures: SessionStatistics, width: int, ink: PanelStyles) -> Text:
    """All sources in one bar."""
    shown = [part for part in parts(figures.shares) if part.share > 0]
    columns = widths([part.share for part in shown], width)
    joined = Text("").join(
        share_bar(part, column, ink) for part, column in zip(shown, columns, strict=True)
    )
    joined.truncate(width)
    return joined


def trend(figures: SessionStatistics, ink: PanelStyles) -> Text:
    """Tokens a call over the last minutes; one token a call is the floor."""
    line = Text()
    for level in sparkline(figures.trend(), floor=1.0):
        line.append(level, style=ink.faint if level == NOTHING else ink.accent)
    return line


_EIGHTHS = " ▏▎▍▌▋▊▉█"
NOTHING = "·"
"""Where a sparkline has no value."""

_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` columns, exact to an eighth; empty only at 0."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    whole, part = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[part].strip()


def sparkline(values: Sequence[float], floor: float) -> str:
    """One character for each value, from `floor` to the largest; `NOTHING` for 0, no value."""
    top = max([*values, floor * 2])
    return "".join(
        _level((value - floor) / (top - floor)) if value else NOTHING for value in values
    )


def widths(shares: Sequence[float], width: int) -> list[int]:
    """Whole columns for `shares` of `width`: together as near as can be, none empty.

    Largest remainders: what rounding down leaves over goes where it was missed most.
    """
    exact = [share * width for share in shares]
    columns = [max(1, int(value)) for value in exact]
    left = round(sum(exact)) - sum(columns)
    by_need = sorted(range(len(exact)), key=lambda index: columns[index] - exact[index])
    for index in by_need[: max(left, 0)]:
        columns[index] += 1
    return columns


def _level(share: float) -> str:
    return _LEVELS[min(max(int(share * len(_LEVELS)), 0), len(_LEVELS) - 1)]
