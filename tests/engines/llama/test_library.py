"""A build of llama.cpp for graphics cards shares its C++ library in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engines.llama.library import FOLDER_VARIABLE
from tests.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it matters on Linux alone")

SHARED = """
import ctypes
print('NumPy' if 'numpy' in sys.modules else '', hasattr(ctypes.CDLL(None), CXX_FUNCTION))
"""
CXX_FUNCTION = "_ZNSt8ios_base4InitC1Ev"
"""A function that libstdc++ has and Python lacks: std::ios_base::Init::Init()."""


@pytest.fixture
def gpu_build(tmp_path: Path) -> Path:
    """The installed libraries, with a backend for graphics cards added."""
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    for library in Path(package.origin).with_name("lib").iterdir():
        (tmp_path / library.name).symlink_to(library)
    (tmp_path / "libggml-cuda.so").touch()
    return tmp_path


def shared_after(code: str, folder: Path | None) -> str:
    """Whether C++ functions are found by all libraries of a process that ran `code`, and whether
    NumPy came before."""
    build = {FOLDER_VARIABLE: str(folder)} if folder else {}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nCXX_FUNCTION = {CXX_FUNCTION!r}\n{code}\n{SHARED}"],
        env={**os.environ, **build},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", ["app", "engines.llama.probe_process", "app.runtime.learning_process"]
)
def test_the_cxx_library_of_a_build_for_graphics_cards_is_shared(
    gpu_build: Path, module: str
) -> None:
    assert shared_after(f"import {module}", gpu_build).endswith("True")


def test_it_is_shared_before_numpy_brings_its_own(gpu_build: Path) -> None:
    assert shared_after("import app", gpu_build) == "True"


def test_a_build_for_the_cpu_shares_nothing() -> None:
    assert shared_after("import app", None) == "False"
