"""."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app.conversation.events import Piece
from app.conversation.statistics import _BITS
from engines.draft_tree import NAMES

KEPT_AS = "sources"
"""The name of the runs among an answer's figures."""


class Provenance:
    """The runs of a growing answer."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, str]] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """Take what new tokens said."""
        for piece in pieces:
            name = NAMES.get(piece.source, "")
            length = len(piece.text)
            if self._runs and self._runs[-1][1] == name:
                length += self._runs.pop()[0]
            self._runs.append((length, name))

    def runs(self) -> list[tuple[int, str]]:
        """The runs so far."""
        return list(self._runs)


def pieces_of(text: str, runs: Sequence[Any]) -> list[Piece]:
    """`text` in its runs, as they were kept; nothing where they are not those of this text."""
    pieces, at = [], 0
    for run in runs:
        match run:
            case [int(length), str(name)] if name in _BITS and length > 0:
                pieces.append(Piece(text[at : at + length], _BITS[name]))
                at += length
            case _:
                return []
    return pieces if at == len(text) else []
