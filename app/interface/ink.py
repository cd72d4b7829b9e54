"""What the acceptance panel is drawn with: styles, colours, and the parts its forms share.

Knows Rich only. Each function makes one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app.figures import Figures
from app.interface import wording
from app.interface.bars import NOTHING, bar, sparkline, widths
from app.interface.sources import BY_NAME, OWN, Source
from engines.outlook import Outlook


@dataclass(frozen=True, slots=True)
class Ink:
    """Styles on a `dark` background or a light one, and the `hint` that stands at the end."""

    text: Style
    dim: Style
    faint: Style
    accent: Style
    warning: Style
    dark: bool
    hint: str = ""

    def of(self, source: Source) -> Style:
        """The colour of a source."""
        return Style(color=source.color(dark=self.dark))


@dataclass(frozen=True, slots=True)
class Part:
    """A source and its share of the answer."""

    source: Source
    share: float


def parts(shares: Mapping[str, float]) -> list[Part]:
    """The sources, largest first, and at the end what the model wrote alone."""
    known = [Part(BY_NAME[name], share) for name, share in shares.items()]
    known.sort(key=lambda part: -part.share)
    return [*known, Part(OWN, max(0.0, 1 - sum(shares.values())))]


def missed(outlook: Outlook) -> list[Part]:
    """While drafting is paused: the sources whose drafts would have been accepted, best first."""
    shares = outlook.would_accept.items() if outlook.paused else ()
    would = [Part(BY_NAME[name], share) for name, share in shares if share > 0]
    return sorted(would, key=lambda part: -part.share)


def lead(figures: Figures, ink: Ink) -> Text:
    """`2.3× faster`."""
    assert figures.outlook is not None
    style = ink.accent if wording.is_faster(figures.now) else ink.text
    return Text(wording.ratio(figures.now, figures.outlook), style=style + Style(bold=True))


def speed_bar(figures: Figures, plain: bool, width: int, ink: Ink) -> Text:
    """One of the two bars, `width` columns wide, on the scale that both share."""
    pace = figures.now
    fastest = max(pace.speed, pace.plain_speed) or 1.0
    share = (pace.plain_speed if plain else pace.speed) / fastest
    text = Text.assemble((bar(share, width), ink.faint if plain else ink.accent))
    text.pad_right(width - text.cell_len)
    return text


def speed(figures: Figures, plain: bool, ink: Ink) -> Text:
    """`41 tok/s`, `~18 tok/s`."""
    assert figures.outlook is not None
    pace = figures.now
    if not plain:
        return Text(wording.speed(pace.speed), style=ink.text)
    return Text(wording.mark(figures.outlook) + wording.speed(pace.plain_speed), style=ink.text)


def share_bar(part: Part, columns: int, ink: Ink) -> Text:
    """`P▓▓▓▓`: letter and texture in the colour of the source."""
    source, style = part.source, ink.of(part.source)
    letter = (source.letter, style + Style(bold=True))
    return Text.assemble(letter, (source.texture * (columns - 1), style))


def stacked_bar(figures: Figures, width: int, ink: Ink) -> Text:
    """All sources in one bar."""
    shown = [part for part in parts(figures.shares) if part.share > 0]
    columns = widths([part.share for part in shown], width)
    joined = Text("").join(
        share_bar(part, column, ink) for part, column in zip(shown, columns, strict=True)
    )
    joined.truncate(width)
    return joined


def trend(figures: Figures, ink: Ink) -> Text:
    """Tokens a call over the last minutes; one token a call is the floor."""
    line = Text()
    for level in sparkline(figures.trend(), floor=1.0):
        line.append(level, style=ink.faint if level == NOTHING else ink.accent)
    return line
