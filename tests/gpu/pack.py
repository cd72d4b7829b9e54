"""`python -m tests.gpu.pack FOLDER LLAMA_CPP_PYTHON_SOURCE [MODEL.gguf]`: what goes along.

A machine with a card may reach no package index, and take only some 60 MiB at a time. Into FOLDER
go the source of llama.cpp for CPU and CUDA alone (without docs, models, tools and other backends),
wheels of what `tests.gpu.check` imports, and a small real model in parts that fit.

The source is an unpacked llama-cpp-python, as `pip download --no-binary :all: --no-deps` brings it.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

LLAMA_PARTS = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src", "ggml", "vendor")
BACKENDS = ("ggml-cpu", "ggml-cuda")
WHEELS = (
    "beautifulsoup4",
    "click",
    "click-default-group",
    "diskcache",
    "faiss-cpu",
    "gguf",
    "httpcore2",
    "httpx2",
    "huggingface-hub",
    "ijson",
    "markdownify",
    "pathspec",
    "platformdirs",
    "soupsieve",
    "sqlite-fts4",
    "sqlite-utils",
    "tokenizers",
    "tomlkit",
    "transformers",
    "truststore",
    "typer",
)
"""What the CUDA machine's Python lacks, or has too old; torch and NumPy are there."""
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17")
PYTHON = "3.12"
PART_BYTES = 47 * 2**20
"""Of the model, beside the tree itself and what else travels."""


def kept(llama: Path) -> Iterator[Path]:
    """The files of llama.cpp that a build for CPU and CUDA needs."""
    for part in LLAMA_PARTS:
        for path in [llama / part, *sorted((llama / part).rglob("*"))]:
            inner = path.relative_to(llama).parts
            other = len(inner) > 3 and inner[:2] == ("ggml", "src") and inner[2].startswith("ggml-")
            if path.is_file() and not (other and inner[2] not in BACKENDS):
                yield path


def pack_source(source: Path, archive: Path) -> None:
    """The Python package and the kept part of llama.cpp, as one archive."""
    llama = source / "vendor" / "llama.cpp"
    with tarfile.open(archive, "w:xz") as tar:
        for path in kept(llama):
            tar.add(path, Path("llama.cpp") / path.relative_to(llama))
        for path in sorted((source / "llama_cpp").glob("*.py")):
            tar.add(path, Path("site") / "llama_cpp" / path.name)


def fetch_wheels(folder: Path) -> None:
    """The wheels for the other machine's Python, with pip."""
    platforms = [f"--platform={name}_x86_64" for name in (*PLATFORMS, "manylinux2014")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp"]
    for name in WHEELS:
        subprocess.run([*command, *platforms, f"--dest={folder}", name], check=True)


def split(model: Path, folder: Path) -> None:
    """The model in parts, each in a folder of its own."""
    with model.open("rb") as file:
        number = 0
        while part := file.read(PART_BYTES):
            place = folder / f"part-{number}"
            place.mkdir(exist_ok=True)
            (place / f"model.{number:02}").write_bytes(part)
            number += 1


def main(folder: Path, source: Path, model: Path | None) -> None:
    """Fill `folder`."""
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    pack_source(source, folder / "tools" / "llama.tar.xz")
    fetch_wheels(folder / "tools")
    if model is not None:
        split(model, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
