"""Encoded chats on disk, and batches without waste.

Owns the array files of the ``prepare`` step and the order of training. Chats of like length stand
in one batch, so hardly a token is padding and attention never crosses a chat.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assets.recipe.tokens import END_OF_TEXT, WEIGHT_SCALE
from datastores.errors import InputError

_WINDOW = 4096
_PIECE_TOKENS = 704


@dataclass(frozen=True)
class Piece:
    """One forward pass.

    ids: (batch, length) int64; weights: (batch, length) float32, of predicting the *next* token.
    """

    ids: Tensor
    weights: Tensor

    @property
    def tokens(self) -> int:
        """Size with padding."""
        return self.ids.numel()


@dataclass(frozen=True)
class Corpus:
    """Chats end to end: ids (n,), weights (n,) in twentieths, starts (chats + 1,)."""

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    starts: NDArray[np.int64]

    def save(self, folder: Path) -> None:
        """Write the three arrays into ``folder``."""
        for name in ("ids", "weights", "starts"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "Corpus":
        """Map the arrays of ``folder``.

        Raises:
            InputError: the ``prepare`` step has not run.
        """
        if not (folder / "starts.npy").exists():
            raise InputError(f"{folder}: no prepared chats here; run the prepare step first")
        arrays = (np.load(folder / f"{n}.npy", mmap_mode="r") for n in ("ids", "weights", "starts"))
        return cls(*arrays)

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
        ids = np.full((len(group), longest), END_OF_TEXT, dtype=np.int64)
        weights = np.zeros((len(group), longest), dtype=np.float32)
        for row, (start, stop) in enumerate(spans):
            ids[row, : stop - start] = self.ids[start:stop]
            weights[row, : stop - start - 1] = self.weights[start + 1 : stop]
        return Piece(torch.from_numpy(ids), torch.from_numpy(weights / WEIGHT_SCALE))
