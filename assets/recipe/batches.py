"""Encoded chats on disk, and batches with little padding.

Owns the array files of the ``prepare`` step and the order of training. Chats of similar length
share a batch, so there is hardly any padding, and attention never crosses from chat to chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assets.recipe.tokens import END_OF_TEXT, NO_SOURCE, WEIGHT_SCALE, Encoded, Indices
from datastores.errors import InputError

_WINDOW = 4096
_BATCH_TOKENS = 512


@dataclass(frozen=True)
class Batch:
    """The input of one forward pass.

    All (batch, length): ids, int64; weights, float32, of predicting the *next* token; and the
    positions that the next token is copied from and that mark its task, int64, as in `align`.
    """

    ids: Tensor
    weights: Tensor
    copied: Tensor
    chosen: Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on ``device``."""
        return Batch(*(getattr(self, each.name).to(device) for each in fields(self)))

    @property
    def tokens(self) -> int:
        """Number of tokens, padding included."""
        return self.ids.numel()


@dataclass(frozen=True)
class Corpus:
    """Concatenated chats: the arrays of `Encoded`, each (n,), and starts (chats + 1,)."""

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    copied: Indices
    chosen: Indices
    starts: NDArray[np.int64]

    @classmethod
    def join(cls, chats: Sequence[Encoded]) -> Corpus:
        """Concatenate ``chats``."""
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
    def load(cls, folder: Path) -> Corpus:
        """Memory-map the arrays of ``folder``.

        Raises:
            InputError: the ``prepare`` step has not run.
        """
        files = [folder / f"{each.name}.npy" for each in fields(cls)]
        if not all(file.exists() for file in files):
            raise InputError(f"{folder}: no prepared chats here; run the prepare step first")
        return cls(*(np.load(file, mmap_mode="r") for file in files))

    def batches(self, seed: int, most: int = _BATCH_TOKENS) -> Iterator[Batch]:
        """An endless stream of batches, epoch after epoch, in an order determined by ``seed``."""
        epoch = 0
        while True:
            rng = np.random.default_rng((seed, epoch))
            order = rng.permutation(len(self.starts) - 1)
            for first in range(0, len(order), _WINDOW):
                yield from self._window(order[first : first + _WINDOW], rng, most)
            epoch += 1

    def _window(
        self, chosen: NDArray[np.int64], rng: np.random.Generator, most: int
    ) -> Iterator[Batch]:
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        chosen = chosen[np.argsort(lengths, kind="stable")]
        groups: list[list[int]] = [[]]
        for index in chosen.tolist():
            length = int(self.starts[index + 1] - self.starts[index])
            if groups[-1] and (len(groups[-1]) + 1) * length > most:
                groups.append([])
            groups[-1].append(index)
        for position in rng.permutation(len(groups)):
            yield self._batch(groups[position])

    def _batch(self, group: list[int]) -> Batch:
        spans = [(int(self.starts[i]), int(self.starts[i + 1])) for i in group]
        longest = max(stop - start for start, stop in spans)
        shape = (len(group), longest)
        ids = np.full(shape, END_OF_TEXT, dtype=np.int64)
        weights = np.zeros(shape, dtype=np.float32)
        copied, chosen = (np.full(shape, NO_SOURCE, dtype=np.int64) for _ in range(2))
        for row, (start, stop) in enumerate(spans):
            ids[row, : stop - start] = self.ids[start:stop]
            weights[row, : stop - start - 1] = self.weights[start + 1 : stop]
            copied[row, : stop - start - 1] = self.copied[start + 1 : stop]
            chosen[row, : stop - start - 1] = self.chosen[start + 1 : stop]
        arrays = (ids, weights / WEIGHT_SCALE, copied, chosen)
        return Batch(*(torch.from_numpy(array) for array in arrays))
