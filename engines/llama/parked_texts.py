"""Parked texts: kept in the KV cache along with the cached one, so that returning to one is free.

Iterative retrieval switches between prompts with different passages. Each text keeps its cells, on
a sequence of its own, until others need them; the least recently used is dropped first. A text that
continues another shares the cells of their common prefix. Equal tokens alone do not prove that,
since re-evaluated tokens have cells of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from datastores.tokens import common_prefix
from engines.llama import native
from engines.llama.native import TO_END

_evaluations = count()
"""Numbers every evaluated token in the process."""


class CachedText:
    """A text in the KV cache.

    Attributes:
        cells: for each token, the number of the evaluation that filled its cell. Texts share the
            cells whose numbers they share.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.cells: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens that were just evaluated."""
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
        reserved: number of cells that they occupy and the cached text does not.
    """

    def __init__(self, memory: Any, sequences: range, cells: int) -> None:
        """Args:
        sequences: one for each text, used by nothing else; empty if nothing can be parked.
        cells: size of the whole cache.
        """
        self._memory = memory
        self._free = list(sequences)
        self._cells = cells
        self._texts: dict[int, CachedText] = {}  # by sequence, least recently used first
        self.reserved = 0

    def __len__(self) -> int:
        return len(self._texts)

    def park(self, cached: CachedText) -> None:
        """Park the cached text, and drop parked ones that it continues."""
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
        """The sequence of the parked text with the longest common prefix, and its length.

        (0, 0) if no text shares any token.
        """
        shared = {one: common_prefix(text.tokens, tokens) for one, text in self._texts.items()}
        best = max(shared, key=shared.__getitem__, default=0)
        return (best, shared[best]) if best and shared[best] else (0, 0)

    def restore(self, sequence: int) -> CachedText:
        """Move a parked text to sequence 0, which is empty, and return it."""
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
        """Number of cells that only parked texts occupy."""
        parked = {cell for text in self._texts.values() for cell in text.cells}
        return len(parked.difference(cached.cells)) if parked else 0


def _continues(tokens: Sequence[int], text: CachedText) -> bool:
    return common_prefix(tokens, text.tokens) == len(text)
