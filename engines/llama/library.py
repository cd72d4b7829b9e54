"""llama.cpp's shared library: where it is; builds for graphics cards are loaded before NumPy.

On Linux such a build crashes while it is loaded (in `std::regex`) where NumPy was loaded first,
with C++ functions of its own under the same names; loaded first, both work. Owns that order, in
every process of this program. Refuses to import the package `llama_cpp`, which takes much longer.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

PACKAGE, FOLDER_VARIABLE = "llama_cpp", "LLAMA_CPP_LIB_PATH"
LIBRARY, BACKENDS = "libllama.so", "libggml-*.so"
CPU_BACKENDS = ("libggml-base.so", "libggml-cpu", "libggml-blas.so", "libggml-rpc.so")
"""How the names of those begin that need no graphics card."""


class _BeforeNumpy:
    """Finds no module, but loads the library when NumPy is about to be imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As the import system asks each finder: none."""
        if name == "numpy":
            sys.meta_path.remove(self)
            if library := gpu_library():
                ctypes.CDLL(str(library))
        return None


def load_before_numpy() -> None:
    """Have a build for graphics cards loaded when NumPy is, and not later."""
    if sys.platform == "linux" and "numpy" not in sys.modules:
        sys.meta_path.insert(0, _BeforeNumpy())


def gpu_library() -> Path | None:
    """The library, if it was built for graphics cards; None for a build for the CPU, or none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        package = find_spec(PACKAGE)
        if package is None or package.origin is None:
            return None
        folder = str(Path(package.origin).with_name("lib"))
    backends = (one.name for one in Path(folder).glob(BACKENDS))
    library = Path(folder) / LIBRARY
    for_gpu = any(not name.startswith(CPU_BACKENDS) for name in backends)
    return library if for_gpu and library.exists() else None
