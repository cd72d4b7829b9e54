"""A build of llama.cpp for graphics cards is loaded before NumPy, in every process; no other is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engines.llama.library import FOLDER_VARIABLE
from tests.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the order matters on Linux alone")

WATCHED = """
import sys
order = []
def watch(event, arguments):
    if event == "ctypes.dlopen" and str(arguments[0]).endswith("libllama.so"):
        order.append("llama.cpp")
    if event == "import" and arguments[0] == "numpy._core._multiarray_umath":
        order.append("NumPy")
sys.addaudithook(watch)
"""
ASK = "import app.__main__; sys.argv = ['specchat', 'ask', 'list files', '--max-tokens', '2']\n"
ASKED = f"{ASK}try: app.__main__.main()\nexcept SystemExit as end: assert not end.code\n"


@pytest.fixture
def gpu_build(tmp_path: Path) -> Path:
    """The installed libraries beside a backend for graphics cards."""
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    for library in Path(package.origin).with_name("lib").iterdir():
        (tmp_path / library.name).symlink_to(library)
    (tmp_path / "libggml-cuda.so").touch()
    return tmp_path


def loaded(code: str, data: Path, folder: Path | None) -> str:
    """In which order a new process that runs `code` loads the two."""
    build = {FOLDER_VARIABLE: str(folder)} if folder else {}
    done = subprocess.run(
        [sys.executable, "-c", f"{WATCHED}{code}\nprint('loaded', *order)"],
        env={**os.environ, **build, "SPECCHAT_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout.splitlines()[-1].removeprefix("loaded").strip()


@pytest.mark.parametrize(
    "code",
    [
        "import app, numpy",
        "import app.engine.engine",
        "import app.interface.app, numpy",
        "import app.runtime.learning_process, numpy",
        "import engines.llama.probe, numpy",
        ASKED,
    ],
)
def test_a_build_for_graphics_cards_is_loaded_before_numpy(
    tmp_path: Path, gpu_build: Path, code: str
) -> None:
    order = loaded(code, tmp_path / "data", gpu_build).split()
    assert order[0] == "llama.cpp"
    assert "NumPy" in order


def test_a_build_for_the_cpu_is_loaded_with_the_model_alone(tmp_path: Path) -> None:
    assert "llama.cpp" not in loaded("import app.interface.app, numpy", tmp_path, None)
    assert loaded("import app", tmp_path, None) == ""
