"""Parked texts: kept in the KV cache beside the cached one, so that returning to one costs nothing.

Iterative retrieval switches between passages before the prompt. Each of these texts keeps its
cells on a sequence of its own until others need them: the least recently used goes first.
A text that was continued from another shares the cells of their common beginning. Equal tokens are
no proof of that: what was evaluated again has cells of its own.

Owns which texts are parked, on which sequences, and how many cells they take. Refuses to know how
texts are evaluated and which one is wanted next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from datastores.tokens import common_prefix
from engines.llama import native
from engines.llama.native import TO_END

_evaluations = count()
"""Numbers each evaluated token, in all contexts of the process."""


class CachedText:
    """A text in the KV cache.

    Attributes:
        tokens: its token ids.
        cells: for each token, the number of the evaluation that filled its cell: texts share the
            cells whose numbers they share.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.cells: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`, which were just evaluated."""
        self.tokens.extend(tokens)
        self.cells.extend(islice(_evaluations, len(tokens)))

    def truncate(self, length: int) -> None:
        """Drop all tokens from position `length` on."""
        del self.tokens[length:], self.cells[length:]

    def copy(self) -> CachedText:
        """The same tokens in the same cells."""
        copied = CachedText()
        copied.tokens, copied.cells = self.tokens.copy(), self.cells.copy()
        return copied


class ParkedTexts:
    """The parked texts of one context.

    Attributes:
        reserved: number of cells that they take and the cached text does not.
    """

    def __init__(self, memory: Any, sequences: range, cells: int) -> None:
        """Args:
        sequences: one for each text, used by nothing else; empty where nothing can be parked.
        cells: of the whole cache.
        """
        self._memory = memory
        self._free = list(sequences)
        self._cells = cells
        self._texts: dict[int, CachedText] = {}  # by sequence, least recently used first
        self.reserved = 0

    def __len__(self) -> int:
        return len(self._texts)

    def park(self, cached: CachedText) -> None:
        """Keep the cached text, in place of parked ones that it continues."""
        tokens = cached.tokens
        for sequence in [one for one, text in self._texts.items() if _continues(tokens, text)]:
            self._drop(sequence)
        if not self._free and self._texts:
            self._drop(next(iter(self._texts)))
        if self._free and tokens:
            sequence = self._free.pop()
            native.seq_cp(self._memory, 0, sequence, 0, TO_END)
            self._texts[sequence] = cached.copy()

    def nearest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The parked text that shares most with `tokens`, by its sequence, and how many tokens.

        (0, 0) if none shares any.
        """
        shared = {one: common_prefix(text.tokens, tokens) for one, text in self._texts.items()}
        best = max(shared, key=shared.__getitem__, default=0)
        return (best, shared[best]) if best and shared[best] else (0, 0)

    def restore(self, sequence: int) -> CachedText:
        """Move a parked text to sequence 0, which is empty; returns it."""
        native.seq_cp(self._memory, sequence, 0, 0, TO_END)
        text = self._texts[sequence]
        self._drop(sequence)
        return text

    def make_room(self, cached: CachedText, length: int) -> None:
        """Drop texts until the cached one can grow to `length` tokens."""
        self.reserved = self._count(cached)
        while self._texts and self.reserved + length > self._cells:
            self._drop(next(iter(self._texts)))
            self.reserved = self._count(cached)

    def clear(self) -> None:
        """Drop every parked text."""
        for sequence in list(self._texts):
            self._drop(sequence)
        self.reserved = 0

    def _drop(self, sequence: int) -> None:
        del self._texts[sequence]
        native.seq_rm(self._memory, sequence, 0, TO_END)
        self._free.append(sequence)

    def _count(self, cached: CachedText) -> int:
        """Number of cells in use that are not the cached text's."""
        parked = {cell for text in self._texts.values() for cell in text.cells}
        return len(parked.difference(cached.cells)) if parked else 0


def _continues(tokens: Sequence[int], text: CachedText) -> bool:
    return common_prefix(tokens, text.tokens) == len(text)
