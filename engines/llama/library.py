"""llama.cpp's libraries: where they are, and the C++ library that builds for graphics cards share.

Packages that bring C++ functions of their own crash beside such a build on Linux: pyarrow, which
transformers imports where it is installed, with "free(): invalid pointer" when it is loaded after
llama.cpp. With llama.cpp's C++ library loaded for all, before any of them, both work (measured on
an H200 with CUDA 13). Refuses to import the package `llama_cpp`, which takes much longer.
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
"""How the names of those begin that need no graphics card."""


def share_cxx_library() -> None:
    """Load the C++ library of a build for graphics cards for all libraries to come."""
    if sys.platform != "linux" or (folder := gpu_build()) is None:
        return
    # This finds the C++ library as llama.cpp does, which may not be the system's.
    ctypes.CDLL(str(folder / BASE))
    with suppress(OSError):  # It is not loaded: another compiler's library is used.
        ctypes.CDLL(CXX_LIBRARY, os.RTLD_NOLOAD | os.RTLD_GLOBAL)


def gpu_build() -> Path | None:
    """The folder of llama.cpp's libraries, if they were built for graphics cards; else None."""
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
