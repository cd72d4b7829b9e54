"""llama.cpp's libraries: their folder, and the C++ library that builds for graphics cards share.

On Linux, packages with C++ code of their own crash in one process with such a build: pyarrow, which
transformers imports if installed, fails with "free(): invalid pointer" when loaded after llama.cpp.
Both work if llama.cpp's C++ library is first loaded globally (measured on an H200 with CUDA 13).
Importing the package `llama_cpp` here would take much longer.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

PACKAGE, FOLDER_VARIABLE = "llama_cpp", "LLAMA_CPP_LIB_PATH"
BASE, BACKENDS, CXX_LIBRARY = "libggml-base.so", "libggml-*.so", "libstdc++.so.6"
CPU_BACKENDS = (BASE, "libggml-cpu", "libggml-blas.so", "libggml-rpc.so")
"""Prefixes of the libraries that need no graphics card."""


def share_cxx_library() -> None:
    """Load the C++ library of a GPU build globally, for all libraries loaded later."""
    if sys.platform != "linux" or (folder := gpu_build()) is None:
        return
    # Loading this finds llama.cpp's C++ library, which may not be the system's.
    ctypes.CDLL(str(folder / BASE))
    with suppress(OSError):  # not loaded: llama.cpp uses another compiler's library
        ctypes.CDLL(CXX_LIBRARY, os.RTLD_NOLOAD | os.RTLD_GLOBAL)


def gpu_build() -> Path | None:
    """The folder of llama.cpp's libraries if they were built for graphics cards, else None."""
    variable = os.environ.get(FOLDER_VARIABLE)
    if variable is None:
        package = find_spec(PACKAGE)
        if package is None or package.origin is None:
            return None
        folder = Path(package.origin).with_name("lib")
    else:
        folder = Path(variable)
    backends = [one.name for one in folder.glob(BACKENDS)]
    for_gpu = BASE in backends and any(not name.startswith(CPU_BACKENDS) for name in backends)
    return folder if for_gpu else None
