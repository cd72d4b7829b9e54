"""A key-value cache for transformers models that can rewind and keep one branch of a tree.

Owns one preallocated buffer per layer; growing is a write, rewinding an assignment, committing a
gather of a few cells. transformers' own dynamic cache copies all of itself at every step, and its
sliding layers forget what a rewind needs. Refuses to know about tokens, masks and positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, [1, heads, capacity, head width], filled up to `length`."""

    def __init__(self, capacity: int) -> None:
        CacheLayerMixin.__init__(self)
        self._capacity = capacity
        self._buffers: tuple[torch.Tensor, torch.Tensor] = (torch.empty(0), torch.empty(0))
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers in the shape, type and place of the first states to come."""
        keys, values = (
            states.new_empty((*states.shape[:2], self._capacity, states.shape[3]))
            for states in (key_states, value_states)
        )
        self._buffers = (keys, values)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append; views of all that stands in the cache."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self._buffers
        end = self.length + key_states.shape[2]
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        self.length = end
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Of the cells from `start` on, keep those at `rows` (offsets from `start`), in order."""
        if not self.is_initialized:
            return
        cells = [start + row for row in rows]
        for buffer in self._buffers:
            buffer[:, :, start : start + len(cells)] = buffer[:, :, cells]
        self.length = start + len(cells)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self._capacity


class RewindableCache(Cache):
    """One `BufferLayer` for each layer of a model.

    Args:
        layers: layers of the model.
        capacity: cells: tokens and tree rows that stand in the cache at the same time.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self._buffers = [BufferLayer(capacity) for _ in range(layers)]
        super().__init__(layers=list(self._buffers))

    def rewind(self, length: int) -> None:
        """Forget every cell from `length` on."""
        for layer in self._buffers:
            layer.length = min(layer.length, length)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the tree that was written from cell `start` on, keep the rows of `path`, in order."""
        if all(row == place for place, row in enumerate(path)):
            self.rewind(start + len(path))
            return
        with torch.inference_mode():  # the buffers were born in it
            for layer in self._buffers:
                layer.keep(start, path)
