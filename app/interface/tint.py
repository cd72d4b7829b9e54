"""Answers tinted by source: each drafted run of words in the colour of who drafted it.

Owns this one view. Every run begins with the small letter of its source, so that nothing depends
on seeing colours. Words are shown as the tokens they came in: this view lays out no Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from app.events import Piece
from app.interface.look import Look
from app.interface.sources import SOURCES


def tinted(pieces: Sequence[Piece], skipped: int, look: Look) -> Text:
    """The text of `pieces` after the first `skipped` characters, tinted."""
    text = Text(overflow="fold", tab_size=4)
    for source, run in _runs(pieces, skipped):
        known = SOURCES.get(source)
        if known is None:
            text.append(run, look["dim"])
            continue
        letter, tint = look.tints[source]
        word = run.lstrip()
        text.append(run[: len(run) - len(word)])
        text.append(known.small if word else "", letter)
        text.append(word, tint)
    return text


def _runs(pieces: Sequence[Piece], skipped: int) -> Iterator[tuple[int, str]]:
    """Neighbouring pieces of one source joined, without the first `skipped` characters."""
    for source, group in groupby(pieces, key=lambda piece: piece.source):
        run = "".join(piece.text for piece in group)
        if skipped < len(run):
            yield source, run[skipped:]
        skipped = max(0, skipped - len(run))
