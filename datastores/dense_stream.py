"""All token streams of a dense index in one array, and where each document's tokens lie in it.

A *place* is an index into the array. Documents are kept apart by `GAP`s, so that a continuation
never runs from one into another; a document that grows after others were added goes on behind them.
Refuses to know keys, files and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Places = NDArray[np.int64]

GAP = -1
"""Stands between documents, and where a document was forgotten."""
ROOM = 256
"""Gaps kept behind the last token: windows may be read past the end."""


class Stream:
    """Tokens of many documents, appended to and looked up by document and position.

    Attributes:
        tokens: int32, `GAP` where there is none; valid until the next `extend`.
        end: the first place that is free.
    """

    def __init__(self) -> None:
        self.tokens: Tokens = np.full(4 * ROOM, GAP, np.int32)
        self.end = ROOM
        self._runs: dict[int, list[tuple[int, int, int]]] = {}

    def extend(self, document: int, start: int, tokens: Sequence[int] | Tokens) -> None:
        """Append tokens of a document, whose first is at position `start` of it."""
        runs = self._runs.setdefault(document, [])
        follows = bool(runs) and self._follows(runs[-1], start)
        if not follows:
            self.end += 1
            runs.append((start, self.end, 0))
        first, place, length = runs[-1]
        self._make_room(len(tokens))
        self.tokens[self.end : self.end + len(tokens)] = tokens
        self.end += len(tokens)
        runs[-1] = (first, place, length + len(tokens))

    def places(self, document: int, positions: NDArray[np.int64]) -> Places:
        """Places of positions of a document; -1 for those it does not hold."""
        places = np.full(len(positions), -1, np.int64)
        for first, place, length in self._runs.get(document, ()):
            inside = (positions >= first) & (positions < first + length)
            places[inside] = positions[inside] - first + place
        return places

    def owned(self, document: int, places: Sequence[int]) -> list[bool]:
        """Which places lie in a document."""
        runs = [(place, place + length) for _, place, length in self._runs.get(document, ())]
        return [any(first <= place < end for first, end in runs) for place in places]

    def documents(self) -> set[int]:
        """The documents that were not forgotten."""
        return set(self._runs)

    def forget(self, document: int) -> None:
        """Overwrite a document's tokens; what looks at its places finds gaps."""
        for _, place, length in self._runs.pop(document, ()):
            self.tokens[place : place + length] = GAP

    def locate(self) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Places]:
        """What `places` tells, for many documents at once, each of which lies in one run now."""
        whole = sorted((d, *runs[0]) for d, runs in self._runs.items())
        documents, starts, places, lengths = np.array(whole, np.int64).reshape(-1, 4).T

        def located(owners: NDArray[np.int64], positions: NDArray[np.int64]) -> Places:
            if not len(documents):
                return np.full(len(owners), -1, np.int64)
            rows = np.searchsorted(documents, owners).clip(max=len(documents) - 1)
            offsets = positions - starts[rows]
            known = (documents[rows] == owners) & (offsets >= 0) & (offsets < lengths[rows])
            found: Places = np.where(known, places[rows] + offsets, -1)
            return found

        return located

    def _follows(self, run: tuple[int, int, int], start: int) -> bool:
        first, place, length = run
        return first + length == start and place + length == self.end

    def _make_room(self, more: int) -> None:
        needed = self.end + more + ROOM
        if needed > len(self.tokens):
            grown = np.full(max(needed, len(self.tokens) * 5 // 4), GAP, np.int32)
            grown[: self.end] = self.tokens[: self.end]
            self.tokens = grown
