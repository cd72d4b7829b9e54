"""Memory of graphics cards, as this build of llama.cpp sees it."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from engines.llama import native

_CARD = 1
"""ggml's type of a device with memory of its own (GGML_BACKEND_DEVICE_TYPE_GPU)."""


def card_memory() -> int:
    """Free bytes on all cards this build can use; 0 where the processor shares its memory."""
    # After `native`, to whose log goes what drivers have to say when they are first asked.
    from llama_cpp import llama_cpp as lib

    if sys.platform == "darwin" or not lib.llama_supports_gpu_offload():
        return 0  # Metal reports the processor's own memory
    free = sum(_free(lib._lib, device) for device in _cards(lib._lib))
    native.LOGGER.info("%d bytes are free on graphics cards", free)
    return free


def _cards(library: Any) -> list[ctypes.c_void_p]:
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    devices = (
        ctypes.c_void_p(library.ggml_backend_dev_get(ctypes.c_size_t(index)))
        for index in range(library.ggml_backend_dev_count())
    )
    return [device for device in devices if library.ggml_backend_dev_type(device) == _CARD]


def _free(library: Any, device: ctypes.c_void_p) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value
