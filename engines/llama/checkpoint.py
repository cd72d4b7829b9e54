"""Recurrent memory: how to go back to an earlier state.

Recurrent and hybrid models fold the text into a running state of fixed size, and a state cannot
forget its last tokens. llama.cpp keeps snapshots of the last few states of some architectures; to
drop more tokens, or on the other architectures, a checkpoint is saved before a draft is verified,
and loaded and extended by what was accepted after one that was not accepted whole.

Owns the copy of a state. Refuses to know which drafts are worth verifying: the budget does, by what
both ways cost.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.native import TO_END

CHECKPOINT_FLAGS = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY | lib.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
"""Copy what cannot be cut alone, not the cells of attention, and leave the copy on the device."""


class Checkpoint:
    """The state of sequence 0 behind its first `length` tokens; none where `length` is -1."""

    def __init__(self, context: Any, memory: Any) -> None:
        self._context = context
        self._memory = memory
        self._state = np.empty(0, np.uint8)
        self.length = -1

    def save(self, length: int) -> None:
        """Keep the present state, which is behind `length` tokens.

        Raises:
            ModelError: llama.cpp cannot save it.
        """
        self.length = -1
        size = native.partial_state_size(self._context, 0, CHECKPOINT_FLAGS)
        if size != len(self._state):
            self._state = np.empty(size, np.uint8)
        if not size or self._copy(native.save_partial_state) != size:
            raise ModelError("llama.cpp could not save this model's state")
        self.length = length

    def restore(self) -> bool:
        """Go back to the saved state, dropping what follows; False where there is none."""
        if self.length < 0:
            return False
        loaded: int = self._copy(native.load_partial_state)
        cut = native.seq_rm(self._memory, 0, self.length, TO_END)
        return (
            loaded == len(self._state)
            and bool(cut)
            and native.seq_pos_max(self._memory, 0) == self.length - 1
        )

    def truncate(self, length: int) -> None:
        """The text behind its first `length` tokens changes: a longer checkpoint is void."""
        if self.length > length:
            self.length = -1

    def _copy(self, function: Callable[..., int]) -> int:
        address = ctypes.cast(self._state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
        return function(self._context, address, len(self._state), 0, CHECKPOINT_FLAGS)
