"""The child process of `engines.llama.probe`: loads a file, runs one token, and says how it went.

Dies of what llama.cpp dies of. Keeps a hostile file from taking all memory; dumps no core.

Whether llama.cpp survives a file: tried in a child process, once for each file.

An assertion in llama.cpp aborts the process it is in. A file that was never loaded before is
therefore loaded, given a context and run for one token elsewhere first. Files that passed are
remembered by path, size and time of change.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from datastores.errors import ModelError, SpecchatError, StoreError
from datastores.storage.files import write_atomic

CHILD = "from engines.llama.probe import main; main()"
REFUSED = 3
"""Exit code of a child that was told a reason, which it has printed as its last line."""
PATIENCE, SLOWEST_DISK = 60, 20e6
"""Seconds any file gets, and bytes per second below which a disk is not waited for."""
LONGEST = 400


def probe_once(path: Path, known: Path, build: str) -> None:
    """Probe `path` unless the file `known` remembers that this build has loaded it.

    Raises:
        ModelError: llama.cpp refuses the file, crashes on it, or does not come to an end.
    """
    status = path.stat()
    mark = f"{status.st_size}:{status.st_mtime_ns}:{build}"
    remembered = _read(known)
    if remembered.get(str(path.resolve())) == mark:
        return
    _probe(path, PATIENCE + status.st_size / SLOWEST_DISK)
    _write(known, {**remembered, str(path.resolve()): mark})


def _probe(path: Path, patience: float) -> None:
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", CHILD, str(path)],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{path} could not be loaded within {patience:.0f} s: choose another file"
        ) from None
    if child.returncode == REFUSED:
        raise ModelError(_last_line(child.stdout))
    if child.returncode:
        raise ModelError(f"{path} {_death(child)}: choose another file or download it again")


def _environment() -> dict[str, str]:
    """Ours, with our import path, and without ggml's attempt to start a debugger when it aborts."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}


def _death(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode == -signal.SIGKILL:
        return "takes more memory than there is"
    words = _last_line(child.stderr).partition(": GGML_ASSERT")
    return f"crashes llama.cpp ({(words[1] + words[2])[2:] or f'exit code {child.returncode}'})"


def _last_line(output: bytes) -> str:
    """The last line that says something, made safe to show and short."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    spoken = [line for line in lines if line] or [""]
    return "".join(char for char in spoken[-1] if char.isprintable())[:LONGEST]


def _read(known: Path) -> dict[str, str]:
    """What is remembered; nothing, where the file is missing or damaged: it is only a cache."""
    try:
        content = json.loads(known.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(known: Path, content: dict[str, str]) -> None:
    try:
        known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(known, [json.dumps(content)])
    except OSError as error:
        raise StoreError(f"{known} cannot be written ({error.strerror}): move it away") from error


ROOM = 4 << 30
"""Address space beyond three times the file: its mapping, its repacked copy, its context."""
CELLS = 256


def main() -> None:
    """Probe the file named by the first argument; exit code 0, or REFUSED after one line."""

    path = Path(sys.argv[1])
    try:
        _limit(path.stat().st_size)
        _try(path)
    except SpecchatError as error:
        print(error)
        sys.exit(REFUSED)
    except (OSError, MemoryError) as error:
        print(f"{path} cannot be loaded ({type(error).__name__}): choose another file")
        sys.exit(REFUSED)


def _limit(size: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    from llama_cpp import llama_cpp as lib

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Drivers of graphics cards reserve address space far beyond what they use.
    if not lib.llama_supports_gpu_offload():
        limit = 3 * size + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _try(path: Path) -> None:
    from engines.chat_template.template import ChatTemplate
    from engines.llama.context import LlamaContext, Weights, usable_rows
    from engines.llama.vocabulary import LlamaVocabulary

    weights = Weights(path, gpu_layers=0)
    vocabulary = LlamaVocabulary(weights.vocabulary, weights)
    ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)
    usable_rows(LlamaContext(weights, CELLS, rows=2, threads=1), rows=2)
