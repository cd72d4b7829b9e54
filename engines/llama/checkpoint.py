"""Checkpoints of a recurrent memory, to return to an earlier state.

Recurrent and hybrid models fold the text into a running state of fixed size, which cannot forget
its last tokens. For some architectures llama.cpp keeps snapshots of the last few states. To drop
more tokens, or on other architectures, a checkpoint is saved before a draft is verified; if the
draft is not fully accepted, the checkpoint is restored and the accepted tokens are re-evaluated.
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
"""Copy only the running state, not the cells of attention, and keep the copy on the device."""


class Checkpoint:
    """The state of sequence 0 after its first `length` tokens; none if `length` is -1."""

    def __init__(self, context: Any, memory: Any) -> None:
        self._context = context
        self._memory = memory
        self._state = np.empty(0, np.uint8)
        self.length = -1

    def save(self, length: int) -> None:
        """Save the current state, which is that after `length` tokens.

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
        """Return to the saved state and drop later tokens; False if that fails."""
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
        """Discard the checkpoint if it covers more than the first `length` tokens."""
        if self.length > length:
            self.length = -1

    def _copy(self, function: Callable[..., int]) -> int:
        address = ctypes.cast(self._state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
        return function(self._context, address, len(self._state), 0, CHECKPOINT_FLAGS)
