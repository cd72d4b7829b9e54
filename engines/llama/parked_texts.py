"""Texts that wait in the KV cache beside the cached one, so that coming back to one costs nothing.

Iterative retrieval puts now this document before the prompt, now that one. Each of these texts
keeps its cells on a sequence of its own until others need them: the least recently used goes first.
Texts that begin alike share the cells of what they have in common, since each one was continued
from the text nearest to it: the cells in use are the nodes of a trie.

Owns which texts wait, on which sequences, and how many cells they take. Refuses to know how texts
are evaluated and which one is wanted next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from datastores.tokens import common_prefix
from engines.llama import native
from engines.llama.native import TO_END


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
        self._texts: dict[int, list[int]] = {}  # by sequence, least recently used first
        self.reserved = 0

    def __len__(self) -> int:
        return len(self._texts)

    def park(self, tokens: Sequence[int]) -> None:
        """Keep the cached text `tokens`, in place of parked ones that it continues."""
        for sequence in [one for one, text in self._texts.items() if _continues(tokens, text)]:
            self._drop(sequence)
        if not self._free and self._texts:
            self._drop(next(iter(self._texts)))
        if self._free and tokens:
            sequence = self._free.pop()
            native.seq_cp(self._memory, 0, sequence, 0, TO_END)
            self._texts[sequence] = list(tokens)

    def nearest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The parked text that shares most with `tokens`, by its sequence, and how many tokens.

        (0, 0) if none shares any.
        """
        shared = {one: common_prefix(text, tokens) for one, text in self._texts.items()}
        best = max(shared, key=shared.__getitem__, default=0)
        return (best, shared[best]) if best and shared[best] else (0, 0)

    def restore(self, sequence: int) -> list[int]:
        """Move a parked text to sequence 0, which is empty; returns its tokens."""
        native.seq_cp(self._memory, sequence, 0, 0, TO_END)
        tokens = self._texts[sequence]
        self._drop(sequence)
        return tokens

    def make_room(self, tokens: Sequence[int], length: int) -> None:
        """Drop texts until the cached one, now `tokens`, can grow to `length` tokens."""
        if not self._texts:
            return
        self.reserved = self._count(tokens)
        while self._texts and self.reserved + length > self._cells:
            self._drop(next(iter(self._texts)))
            self.reserved = self._count(tokens)

    def clear(self) -> None:
        """Drop every parked text."""
        for sequence in list(self._texts):
            self._drop(sequence)
        self.reserved = 0

    def _drop(self, sequence: int) -> None:
        del self._texts[sequence]
        native.seq_rm(self._memory, sequence, 0, TO_END)
        self._free.append(sequence)

    def _count(self, tokens: Sequence[int]) -> int:
        """Nodes of the trie of all texts that are not on the path of `tokens`."""
        cached = list(tokens)
        texts = sorted([*self._texts.values(), cached])
        shared = sum(common_prefix(one, other) for one, other in pairwise(texts))
        return sum(len(text) for text in texts) - shared - len(cached)


def _continues(tokens: Sequence[int], text: Sequence[int]) -> bool:
    return common_prefix(tokens, text) == len(text)
