"""The chats of a step as batches with little padding.

Chats of similar length share a batch, so there is hardly any padding, and attention never crosses
from one chat to another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assets.recipe.chat_stream import EncodedChats
from assets.recipe.tokens import END_OF_TEXT, NO_SOURCE, WEIGHT_SCALE


@dataclass(frozen=True)
class TrainingBatch:
    """The input of one forward pass.

    Attributes:
        ids: (batch, length), int64.
        rows: (n,), int64: the positions in the flat ids whose next token has a weight.
        targets, weights: (n,), int64 and float32: those tokens, and their weights.
        copied, chosen: (batch, length), int64: the position that the *next* token is copied from,
            and the one that marks its task, as in `align`.
        guided: whether ``copied`` or ``chosen`` holds any position.

    Indices are computed before the arrays move to a GPU, which saves a synchronisation.
    """

    ids: Tensor
    rows: Tensor
    targets: Tensor
    weights: Tensor
    copied: Tensor
    chosen: Tensor
    guided: bool

    def to(self, device: torch.device) -> TrainingBatch:
        """A copy of the batch on ``device``."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return TrainingBatch(**{**vars(self), **moved})

    @property
    def tokens(self) -> int:
        """Number of tokens, padding included."""
        return self.ids.numel()


def make_batches(chats: EncodedChats, most: int) -> list[TrainingBatch]:
    """Batches of at most ``most`` tokens, padding included; a longer chat has one of its own."""
    lengths = np.diff(chats.starts)
    groups: list[list[int]] = [[]]
    for index in np.argsort(lengths, kind="stable").tolist():
        if groups[-1] and (len(groups[-1]) + 1) * lengths[index] > most:
            groups.append([])
        groups[-1].append(index)
    return [_make_batch(chats, np.asarray(group)) for group in groups]


def _make_batch(chats: EncodedChats, group: NDArray[np.int64]) -> TrainingBatch:
    starts, stops = chats.starts[group, None], chats.starts[group + 1, None]
    places = starts + np.arange((stops - starts).max())
    following = np.minimum(places + 1, len(chats.ids) - 1)
    last = places + 1 >= stops
    ids = np.where(places < stops, chats.ids[np.minimum(places, stops - 1)], END_OF_TEXT)
    weights = np.where(last, 0, chats.weights[following])
    copied = np.where(last, NO_SOURCE, chats.copied[following])
    chosen = np.where(last, NO_SOURCE, chats.chosen[following])
    rows = np.flatnonzero(weights)
    return TrainingBatch(
        ids=torch.from_numpy(ids.astype(np.int64)),
        rows=torch.from_numpy(rows),
        targets=torch.from_numpy(ids.flat[rows + 1].astype(np.int64)),
        weights=torch.from_numpy((weights.flat[rows] / WEIGHT_SCALE).astype(np.float32)),
        copied=torch.from_numpy(copied.astype(np.int64)),
        chosen=torch.from_numpy(chosen.astype(np.int64)),
        guided=bool((copied != NO_SOURCE).any() or (chosen != NO_SOURCE).any()),
    )
