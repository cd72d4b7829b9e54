"""A copy of a model's file with matrices in BF16, where the processor multiplies these fastest.

For passes of hundreds of rows. With AVX512_BF16, as in Zen 4 and 5, all-MiniLM-L6-v2 takes 168 µs
of CPU for a token instead of 245 in 8 bits and 225 in F16; its vectors change by a cosine of .9996
at least, by 8 bits in the activations as much as by the rounding.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from llama_cpp import llama_cpp as lib

from engines.llama.build import used_features
from engines.llama.devices import offloads
from engines.llama.gguf import read_metadata
from engines.llama.native import LOGGER

MAX_BYTES = 128 << 20
"""Largest file that is copied: to copy it takes 1.5 ms of CPU, and 1.4 MB on disk, for each MB
(all-MiniLM-L6-v2, whose embeddings are half of it)."""


@contextmanager
def bf16_copy(path: Path) -> Iterator[Path]:
    """A file to open instead of `path` within `with`, after which it is deleted; `path` itself if
    a copy is not faster, or cannot be made.

    Raises:
        ModelError: `path` is no GGUF file.
    """
    if not _is_faster(path):
        yield path
        return
    with TemporaryDirectory(prefix="specchat-") as folder:
        copy = Path(folder) / path.name
        yield copy if _write(path, copy) else path


def _is_faster(path: Path) -> bool:
    # Windows deletes no file that is open.
    if sys.platform == "win32" or offloads() or path.stat().st_size > MAX_BYTES:
        return False
    features = used_features(lib.llama_print_system_info().decode())
    stored = read_metadata(path).values.get("general.file_type")
    return (
        stored == lib.LLAMA_FTYPE_MOSTLY_Q8_0
        and "AVX512_BF16" in features
        and "AMX_INT8" not in features
    )


def _write(path: Path, copy: Path) -> bool:
    """Whether the copy was written; there may be no room."""
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = lib.LLAMA_FTYPE_MOSTLY_BF16, 1
    # They are looked up, not multiplied.
    parameters.token_embedding_type = lib.GGML_TYPE_Q8_0
    parameters.allow_requantize = True
    names = str(path).encode(), str(copy).encode()
    written = lib.llama_model_quantize(*names, ctypes.byref(parameters)) == 0
    if not written:
        LOGGER.info("%s stays in 8 bits: no copy could be written to %s", path, copy)
    return bool(written)
