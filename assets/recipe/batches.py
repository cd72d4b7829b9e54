"""Encoded chats on disk, and batches without waste.

Owns the array files of the ``prepare`` step and the order of training. Chats of like length stand
in one batch, so hardly a token is padding and attention never crosses a chat.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assets.recipe.alignment import NOWHERE, Indices
from assets.recipe.tokens import END_OF_TEXT, WEIGHT_SCALE, Encoded
from datastores.errors import InputError

_WINDOW = 4096
_PIECE_TOKENS = 704


@dataclass(frozen=True)
class Piece:
    """One forward pass.

    All (batch, length): ids, int64; weights, float32, of predicting the *next* token; and where
    that next token is copied from and what tells its task, int64, as in `align`.
    """

    ids: Tensor
    weights: Tensor
    copied: Tensor
    chosen: Tensor

    def to(self, device: torch.device) -> "Piece":
        """The same on ``device``."""
        return Piece(*(getattr(self, each.name).to(device) for each in fields(self)))

    @property
    def tokens(self) -> int:
        """Size with padding."""
        return self.ids.numel()


@dataclass(frozen=True)
class Corpus:
    """Chats end to end: the arrays of `Encoded`, each (n,), and starts (chats + 1,)."""

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    copied: Indices
    chosen: Indices
    starts: NDArray[np.int64]

    @classmethod
    def join(cls, chats: Sequence[Encoded]) -> "Corpus":
        """``chats``, one after another."""
        starts = np.cumsum([0, *(len(chat.ids) for chat in chats)], dtype=np.int64)
        ids = np.concatenate([chat.ids for chat in chats])
        weights = np.concatenate([chat.weights for chat in chats])
        copied = np.concatenate([chat.copied for chat in chats])
        chosen = np.concatenate([chat.chosen for chat in chats])
        return cls(ids, weights, copied, chosen, starts)

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``."""
        for each in fields(self):
            np.save(folder / f"{each.name}.npy", getattr(self, each.name))

    @classmethod
    def load(cls, folder: Path) -> "Corpus":
        """Map the arrays of ``folder``.

        Raises:
            InputError: the ``prepare`` step has not run.
        """
        files = [folder / f"{each.name}.npy" for each in fields(cls)]
        if not all(file.exists() for file in files):
            raise InputError(f"{folder}: no prepared chats here; run the prepare step first")
        return cls(*(np.load(file, mmap_mode="r") for file in files))

    def pieces(self, seed: int, most: int = _PIECE_TOKENS) -> Iterator[Piece]:
        """Pieces for ever, an epoch after another, in an order fixed by ``seed``."""
        epoch = 0
        while True:
            rng = np.random.default_rng((seed, epoch))
            order = rng.permutation(len(self.starts) - 1)
            for first in range(0, len(order), _WINDOW):
                yield from self._window(order[first : first + _WINDOW], rng, most)
            epoch += 1

    def _window(
        self, chosen: NDArray[np.int64], rng: np.random.Generator, most: int
    ) -> Iterator[Piece]:
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        chosen = chosen[np.argsort(lengths, kind="stable")]
        groups: list[list[int]] = [[]]
        for index in chosen.tolist():
            length = int(self.starts[index + 1] - self.starts[index])
            if groups[-1] and (len(groups[-1]) + 1) * length > most:
                groups.append([])
            groups[-1].append(index)
        for position in rng.permutation(len(groups)):
            yield self._piece(groups[position])

    def _piece(self, group: list[int]) -> Piece:
        spans = [(int(self.starts[i]), int(self.starts[i + 1])) for i in group]
        longest = max(stop - start for start, stop in spans)
        shape = (len(group), longest)
        ids = np.full(shape, END_OF_TEXT, dtype=np.int64)
        weights = np.zeros(shape, dtype=np.float32)
        copied, chosen = (np.full(shape, NOWHERE, dtype=np.int64) for _ in range(2))
        for row, (start, stop) in enumerate(spans):
            ids[row, : stop - start] = self.ids[start:stop]
            weights[row, : stop - start - 1] = self.weights[start + 1 : stop]
            copied[row, : stop - start - 1] = self.copied[start + 1 : stop]
            chosen[row, : stop - start - 1] = self.chosen[start + 1 : stop]
        arrays = (ids, weights / WEIGHT_SCALE, copied, chosen)
        return Piece(*(torch.from_numpy(array) for array in arrays))
