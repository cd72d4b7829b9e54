"""The target's inner states that prediction heads read, by llama.cpp's private functions.

Its "staging" functions have mangled C++ names. llama-cpp-python binds some of them in
`llama_cpp_ext`, which may be missing; the others are bound here. No other module uses either.

A pass leaves its rows' states in the context until the next one: `NextnStates` or `LayerInputs`,
depending on what the heads were trained on. Both give one vector for each row, whatever rows were
asked to have logits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from engines.llama import native
from engines.target import Floats

_PTR, _LAYER = ctypes.c_void_p, ctypes.c_uint32
_SET_LAYER_INPUT = (
    "llama_set_embeddings_layer_inp",
    "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
)
_GET_LAYER_INPUT = (
    "llama_get_embeddings_layer_inp",
    "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
    "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
)
"""Names of a function as C, by the Itanium ABI and by Microsoft's."""

try:
    from llama_cpp import llama_cpp_ext
except (ImportError, AttributeError) as error:  # the module or a library function is missing
    UNAVAILABLE = f"this llama-cpp-python cannot run prediction heads ({error})"
else:
    UNAVAILABLE = ""
    set_states = native.keep_lock(llama_cpp_ext.llama_set_embeddings_nextn)
    get_states = native.keep_lock(llama_cpp_ext.llama_get_embeddings_nextn)
    get_state = native.keep_lock(llama_cpp_ext.llama_get_embeddings_nextn_ith)
    set_head = native.keep_lock(llama_cpp_ext.llama_set_nextn_layer_offset)

_set_layer_input = native.bind_first(_SET_LAYER_INPUT, None, _PTR, _LAYER, ctypes.c_bool)
_get_layer_input = native.bind_first(_GET_LAYER_INPUT, _PTR, _PTR, _LAYER)
HAS_LAYER_INPUTS = _set_layer_input is not None and _get_layer_input is not None
"""Whether this build can give `LayerInputs`."""
LAYER_INPUT_ARCHITECTURES = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "gemma4",
        "gpt-oss",
        "hunyuan-dense",
        "hunyuan_vl",
        "lfm2",
        "lfm2moe",
        "llama",
        "mimo2",
        "minimax-01",
        "minimax-m2",
        "muse-glimmer",
        "nanbeige",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen3",
        "qwen35",
        "qwen35moe",
        "qwen3moe",
        "qwen3next",
        "qwen4exp",
    }
)
"""Targets whose layers' inputs llama.cpp gives; it aborts the process if asked for another's."""


class TargetStates(Protocol):
    """What heads read of the target."""

    @property
    def width(self) -> int:
        """Length of each row's vector."""

    def rows(self, rows: Sequence[int]) -> Floats:
        """The vectors of `rows` of the last pass, float32 [len(rows), width]; a copy."""


class NextnStates:
    """llama.cpp's "nextn" embedding: the last hidden state, with or without the final norm."""

    def __init__(self, context: Any, width: int) -> None:
        self.width = width
        self._context = context
        set_states(context, True, False)

    def rows(self, rows: Sequence[int]) -> Floats:
        """See `TargetStates.rows`."""
        found: Floats = view(get_states(self._context), max(rows) + 1, self.width)[rows, :]
        return found


class LayerInputs:
    """The residual stream before some of the layers, side by side (EAGLE-3, section 3.1)."""

    def __init__(self, context: Any, layers: Sequence[int], layer_width: int) -> None:
        self.width = len(layers) * layer_width
        self._context, self._layers, self._layer_width = context, tuple(layers), layer_width
        for layer in self._layers:
            _set_layer_input(context, layer, True)

    def rows(self, rows: Sequence[int]) -> Floats:
        """See `TargetStates.rows`."""
        count = max(rows) + 1
        addresses = [_get_layer_input(self._context, layer) for layer in self._layers]
        parts = [view(address, count, self._layer_width)[rows, :] for address in addresses]
        return np.concatenate(parts, axis=1)


def view(address: Any, rows: int, columns: int) -> Floats:
    """float32 [rows, columns] at `address`: a view, valid until the next pass of its context."""
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
    found: Floats = np.ctypeslib.as_array(pointer, (rows, columns))
    return found
