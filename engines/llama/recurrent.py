"""Recurrent memory: what a state takes, how many past ones to keep, and how to go back to one.

Recurrent and hybrid models fold the text into a running state of fixed size, and a state cannot
forget its last tokens. llama.cpp keeps snapshots of the last few states of some architectures; to
drop more tokens, or on the other architectures, a checkpoint is saved before a draft is verified,
and loaded and extended by what was accepted after one that was not accepted whole.

Owns the size of a state, the number of snapshots and the copy of a state. Refuses to know which
drafts are worth verifying: the budget does, by what both ways cost.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.gguf import Metadata
from engines.llama.native import TO_END

STATE_NUMBER_BYTES = 4
"""llama.cpp computes states in float32."""
MAX_SNAPSHOTS = 8
"""Past states worth keeping: few drafts that are rejected are longer, and every pass writes all of
them."""
SNAPSHOT_BYTES, SNAPSHOT_SHARE = 256 * 2**20, 1 / 16
"""Memory they may take, and more for a large model: a share of its weights."""
CHECKPOINT_FLAGS = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY | lib.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
"""Copy what cannot be cut alone, not the cells of attention, and leave the copy on the device."""


def state_bytes(metadata: Metadata) -> int:
    """Bytes of one state of a recurrent or hybrid model; 0 for other models.

    As llama.cpp's `n_embd_r` and `n_embd_s` (llama-hparams.cpp), by layer, times the layers that
    are recurrent.
    """
    width = metadata.number("embedding_length")
    kernel = max(metadata.number("ssm.conv_kernel") - 1, 0)
    heads, length = metadata.number("attention.head_count"), metadata.number("kda.head_dim")
    rwkv = metadata.number("wkv.head_size")
    if rwkv:
        numbers = width * (metadata.number("token_shift_count", 2) + rwkv)
    elif metadata.number("shortconv.l_cache"):
        numbers = width * (metadata.number("shortconv.l_cache") - 1)
    elif length:
        numbers = heads * length * (3 * (kernel or 3) + length)
    else:
        inner, state = metadata.number("ssm.inner_size"), metadata.number("ssm.state_size")
        numbers = kernel * (inner + 2 * metadata.number("ssm.group_count") * state) + state * inner
    return STATE_NUMBER_BYTES * numbers * _recurrent_layers(metadata)


def _recurrent_layers(metadata: Metadata) -> int:
    layers = metadata.number("block_count") - metadata.number("nextn_predict_layers")
    marked = metadata.values.get(f"{metadata.architecture}.attention.recurrent_layers")
    if isinstance(marked, list):
        return sum(marked[:layers])
    attention = metadata.values.get(f"{metadata.architecture}.attention.head_count_kv")
    if isinstance(attention, list):
        forward = metadata.values.get(f"{metadata.architecture}.feed_forward_length")
        # Where layers have either attention, or a state, or a feed-forward part.
        alone = forward if isinstance(forward, list) and 0 in forward else [0] * layers
        return sum(not (heads or other) for heads, other in zip(attention, alone, strict=False))
    interval = metadata.number("full_attention_interval")
    return layers - (layers // interval if interval else 0)


def snapshot_count(state: int, weights: int) -> int:
    """Past states to keep, of `state` bytes each, beside `weights` bytes of weights."""
    budget = max(SNAPSHOT_BYTES, int(weights * SNAPSHOT_SHARE))
    return min(MAX_SNAPSHOTS, budget // state) if state else MAX_SNAPSHOTS // 2


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
