"""Views over the logits and hidden states that llama.cpp has just written, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from engines.llama import native
from engines.target import Floats, Rows


class Views:
    """Makes `Rows` over one context's output buffers, and makes them anew only when those move.

    `owner` is held by every view, so that the memory outlives it.
    """

    def __init__(self, context: Any, vocabulary: int, width: int, owner: object) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._width = width
        self._owner = owner
        self._known: dict[int, tuple[int, int, Rows]] = {}

    def first(self, rows: int) -> Rows:
        """The first `rows` rows of the last decode. Waits for a device to finish."""
        logits = native.get_logits(self._context)
        hidden = native.get_embeddings(self._context)
        known = self._known.get(rows)
        # The hidden states lie behind the logits, so they move with the width of a decode.
        if known is not None and known[0] == logits and known[1] == hidden:
            return known[2]
        view = Rows(
            self._view(logits, rows, self._vocabulary), self._view(hidden, rows, self._width)
        )
        self._known[rows] = (logits, hidden, view)
        return view

    def _view(self, address: int, rows: int, columns: int) -> Floats:
        """float32 [rows, columns] at `address`, not writeable."""
        memory: Any = (ctypes.c_float * (rows * columns)).from_address(address)
        memory.owner = self._owner
        view: Floats = np.frombuffer(memory, np.float32).reshape(rows, columns)
        view.flags.writeable = False
        return view
