"""Whether llama.cpp survives a file: tried in a child process, once per file and build.

An assertion in llama.cpp aborts the process it is in. So a file that was never loaded before is
first loaded in a child process, given a context and run for two tokens. Files that passed are
listed in a cache by path, size and modification time.

Both sides are here. The parent (`probe_once`) starts this module with the file's path as argument
and reads how it ended: exit code 0; `REFUSED` with a reason as the last line of its output; or a
crash. The child (`main`) keeps a hostile file from taking all memory and writes no core dump.
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

REFUSED = 3
"""Exit code of a child that has printed a reason."""
TIMEOUT_S, MIN_BYTES_PER_S = 60, 20e6
"""Seconds that any file gets, and more for a large one: the reading speed of a slow disk."""
MAX_REASON = 400
ADDRESS_SPACE = 4 << 30
"""Bytes beyond three times the file: its mapping, its repacked copy, its context."""
CELLS = 256
EMBEDDING = "embedding"
"""The child's second argument, for an embedding model."""


def probe_once(path: Path, cache: Path, build: str, *, embedding: bool = False) -> None:
    """Probe `path` unless the file `cache` says that this build has loaded it.

    Args:
        embedding: probe it as an embedding model.

    Raises:
        ModelError: llama.cpp refuses the file, crashes on it, or does not finish.
        StoreError: the cache cannot be written.
    """
    status = path.stat()
    version = f"{status.st_size}:{status.st_mtime_ns}:{build}"
    passed = _read(cache)
    if passed.get(str(path.resolve())) == version:
        return
    _probe(path, TIMEOUT_S + status.st_size / MIN_BYTES_PER_S, embedding=embedding)
    _write(cache, {**passed, str(path.resolve()): version})


def _read(cache: Path) -> dict[str, str]:
    """Versions of files by path; none where the cache is missing or damaged."""
    try:
        content = json.loads(cache.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(cache: Path, passed: dict[str, str]) -> None:
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(cache, [json.dumps(passed)])
    except OSError as error:
        raise StoreError(f"{cache} cannot be written ({error.strerror}): move it away") from error


def _probe(path: Path, timeout_s: float, *, embedding: bool = False) -> None:
    try:
        child = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "engines.llama.probe",
                str(path),
                *[EMBEDDING] * embedding,
            ],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{path} could not be loaded within {timeout_s:.0f} s: choose another file"
        ) from None
    if child.returncode == REFUSED:
        raise ModelError(_last_line(child.stdout))
    if child.returncode:
        raise ModelError(f"{path} {_crash(child)}: choose another file or download it again")


def _environment() -> dict[str, str]:
    """Ours, with our import path, and without ggml's attempt to start a debugger when it aborts."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}


def _crash(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode == -signal.SIGKILL:
        return "ran out of memory"
    _, assertion, text = _last_line(child.stderr).partition(": GGML_ASSERT")
    reason = f"{assertion}{text}".removeprefix(": ") or f"exit code {child.returncode}"
    return f"crashes llama.cpp ({reason})"


def _last_line(output: bytes) -> str:
    """The last line that is not blank, safe to display and of bounded length."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    texts = [line for line in lines if line] or [""]
    return "".join(char for char in texts[-1] if char.isprintable())[:MAX_REASON]


def main() -> None:
    """The child: probe the file named by the first argument; exit with 0, or REFUSED and a line."""
    path = Path(sys.argv[1])
    try:
        _limit_resources(path.stat().st_size)
        _run(path, embedding=sys.argv[2:] == [EMBEDDING])
    except SpecchatError as error:
        print(error)
        sys.exit(REFUSED)
    except (OSError, MemoryError) as error:
        print(f"{path} cannot be loaded ({type(error).__name__}): choose another file")
        sys.exit(REFUSED)


def _limit_resources(file_size: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    from llama_cpp import llama_cpp as lib

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Drivers of graphics cards reserve address space far beyond what they use.
    if not lib.llama_supports_gpu_offload():
        limit = 3 * file_size + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _run(path: Path, *, embedding: bool) -> None:
    if embedding:
        from engines.llama.embedding import EmbeddingModel

        EmbeddingModel(path, threads=1).encode_queries(["one", "two words"])
        return
    from engines.chat_template.template import ChatTemplate
    from engines.llama.context import LlamaContext, Weights, measure_limits
    from engines.llama.vocabulary import LlamaVocabulary

    weights = Weights(path)
    ChatTemplate(weights.metadata("tokenizer.chat_template"), LlamaVocabulary(weights))
    measure_limits(LlamaContext(weights, CELLS, rows=2, threads=1), CELLS, rows=2)


if __name__ == "__main__":
    main()
