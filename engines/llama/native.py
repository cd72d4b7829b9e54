"""The llama.cpp functions of the hot path, bound once, and llama.cpp's log.

Long calls (decode, synchronize) release the interpreter lock. Short ones keep it: releasing it for
two microseconds invites another thread to take it for the whole switch interval (5 ms). Those that
read outputs wait for the device, so `synchronize` comes first where there is one.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from llama_cpp import llama_cpp as lib

LOGGER = logging.getLogger("specchat.llama")
# Without a handler, Python's last-resort handler would write warnings over the screen.
LOGGER.addHandler(logging.NullHandler())

_WARNING, _ERROR = 3, 4
"""ggml's log levels. specchat raises its own errors, so ggml's are logged as warnings."""
_LEVELS = {_WARNING: logging.INFO, _ERROR: logging.WARNING}

_recent_errors: deque[str] = deque(maxlen=8)


def _log(level: int, text: bytes, _user_data: int | None) -> None:
    line = text.decode("utf-8", "replace").rstrip()
    if not line or line == ".":
        return
    if level == _ERROR:
        _recent_errors.append(line)
    LOGGER.log(_LEVELS.get(level, logging.DEBUG), "%s", line)


_LOG_CALLBACK = lib.llama_log_callback(_log)
"""Referenced here because llama.cpp stores only the bare pointer."""


def clear_errors() -> None:
    """Forget logged errors, before a call whose failure `first_error` explains."""
    _recent_errors.clear()


def first_error() -> str:
    """The first error llama.cpp logged since `clear_errors`, without its function's name."""
    if not _recent_errors:
        return ""
    line = _recent_errors[0]
    name, colon, rest = line.partition(": ")
    return rest if colon and " " not in name else line


_library = ctypes.PyDLL(lib._lib._name)
"""The same library, whose calls keep the interpreter lock."""


def _bind(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.argtypes = list(arguments)
    function.restype = result
    return function


def bind_first(names: Sequence[str], result: Any, *arguments: Any) -> Any:
    """Bind the function that has one of `names`; None if the library has none of them."""
    found = next((name for name in names if hasattr(_library, name)), None)
    return None if found is None else _bind(found, result, *arguments)


def keep_lock(function: Any) -> Any:
    """Make one of llama-cpp-python's functions keep the interpreter lock."""
    address: Any = ctypes.cast(function, ctypes.c_void_p).value
    return ctypes.PYFUNCTYPE(function.restype, *function.argtypes)(address)


_PTR, _INT, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool

decode = lib.llama_decode
encode = lib.llama_encode
synchronize = lib.llama_synchronize
seq_rm = _bind("llama_memory_seq_rm", _BOOL, _PTR, _INT, _INT, _INT)
seq_cp = _bind("llama_memory_seq_cp", None, _PTR, _INT, _INT, _INT, _INT)
seq_pos_max = _bind("llama_memory_seq_pos_max", _INT, _PTR, _INT)
set_embeddings = _bind("llama_set_embeddings", None, _PTR, _BOOL)
threads = _bind("llama_n_threads", _INT, _PTR)
set_threads = _bind("llama_set_n_threads", None, _PTR, _INT, _INT)
get_logits = _bind("llama_get_logits", _PTR, _PTR)
get_embeddings = _bind("llama_get_embeddings", _PTR, _PTR)
state_size = _bind("llama_state_seq_get_size", ctypes.c_size_t, _PTR, _INT)
save_state = lib.llama_state_seq_get_data
load_state = lib.llama_state_seq_set_data
partial_state_size = lib.llama_state_seq_get_size_ext
save_partial_state = lib.llama_state_seq_get_data_ext
load_partial_state = lib.llama_state_seq_set_data_ext
tensor_name = _bind("ggml_get_name", ctypes.c_char_p, _PTR)
tensor_bytes = _bind("ggml_nbytes", ctypes.c_size_t, _PTR)
copy_tensor = _bind("ggml_backend_tensor_get", None, _PTR, _PTR, ctypes.c_size_t, ctypes.c_size_t)
token_text = _bind("llama_vocab_get_text", ctypes.c_char_p, _PTR, _INT)
token_attributes = _bind("llama_vocab_get_attr", _INT, _PTR, _INT)
token_is_end = _bind("llama_vocab_is_eog", _BOOL, _PTR, _INT)
token_to_piece = _bind("llama_token_to_piece", _INT, _PTR, _INT, ctypes.c_char_p, _INT, _INT, _BOOL)


class BufferOverride(ctypes.Structure):
    """`llama_model_tensor_buft_override` of llama.h, which llama-cpp-python does not declare."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def keep_on_cpu(pattern: str) -> Any:
    """Value for `tensor_buft_overrides` that keeps tensors whose names match the regular expression
    `pattern` in the CPU's memory. Must be referenced until the model is loaded."""
    cpu = _bind("ggml_backend_cpu_buffer_type", _PTR)()
    return (BufferOverride * 2)(BufferOverride(pattern.encode(), cpu), BufferOverride())


TO_END = -1
"""End of a range in a sequence operation: no limit."""
ALL = -1
"""In place of a sequence: all of them."""

lib.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))
lib.llama_backend_init()
