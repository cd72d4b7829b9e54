"""Probes in a child process, once per file and build, whether llama.cpp can run a file.

An assertion in llama.cpp aborts the process. So a file that was never loaded before is first loaded
in a child process, given a context and run for two tokens. Files that passed are listed in a cache
by path, size and modification time.

The child is `engines.llama.probe_process`, with the file's path as argument. It ends with exit
code 0; with `REFUSED` and a reason as the last line of its output; or by a crash.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from datastores.errors import ModelError
from datastores.storage.files import write_atomic
from engines.llama.gguf import heads_file, read_metadata

LOGGER = logging.getLogger(__name__)

REFUSED = 3
"""Exit code of a child that printed a reason."""
TIMEOUT_S, MIN_BYTES_PER_S = 60, 20e6
"""Time limit for any file, and the speed of a slow disk, for which large files get more time."""
MAX_REASON = 400
EMBEDDING, HEADS = "embedding", "heads"
"""The child's second argument, for an embedding model or a model's prediction heads."""


class UnfinishedProbeError(ModelError):
    """The probe ran out of time or memory, which says nothing about the file."""


def probe_once(path: Path, cache: Path, build: str, *, embedding: bool = False) -> str:
    """Probe `path` unless `cache` lists it for this build.

    Args:
        embedding: probe it as an embedding model.

    Returns:
        Why the next start has to probe it again; empty if it need not.

    Raises:
        ModelError: llama.cpp rejects the file, crashes on it, or does not finish.
    """
    version = f"{_version(path)}:{build}"
    passed = _read(cache)
    if passed.get(str(path.resolve())) == version:
        return ""
    _probe(path, _timeout_s(path), EMBEDDING if embedding else "")
    return _write(cache, {**passed, str(path.resolve()): version})


def probe_heads(path: Path, cache: Path, build: str) -> str:
    """Probe the prediction heads of the model in `path`, as `probe_once` does the model.

    Returns:
        Why they cannot be run; empty if they can, or if the model has none.

    Raises:
        ModelError: the file's header cannot be read.
    """
    from engines.llama.target_states import UNAVAILABLE

    metadata = read_metadata(path)
    separate = heads_file(path, metadata.architecture)
    if separate is None and not metadata.number("nextn_predict_layers"):
        return ""
    if UNAVAILABLE:
        return UNAVAILABLE
    files = [_version(one) for one in (path, separate) if one is not None]
    version, key = f"{' '.join(files)}:{build}:", f"{path.resolve()} {HEADS}"
    passed = _read(cache)
    if not passed.get(key, "").startswith(version):
        try:
            _probe(path, _timeout_s(path), HEADS)
            problem = ""
        except UnfinishedProbeError as error:
            return str(error)  # may succeed another time
        except ModelError as error:
            problem = str(error)
        passed = {**_read(cache), key: version + problem}
        _write(cache, passed)
    return passed[key].removeprefix(version)


def _version(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size}:{status.st_mtime_ns}"


def _read(cache: Path) -> dict[str, str]:
    """Versions of files by path; empty if the cache is missing or damaged."""
    try:
        content = json.loads(cache.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(cache: Path, passed: dict[str, str]) -> str:
    """Write the cache; returns why that failed, if so. The model runs anyway."""
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(cache, [json.dumps(passed)])
    except OSError as error:
        problem = f"Slower start: {cache} cannot be written ({error.strerror}); move it away."
        LOGGER.warning("%s", problem)
        return problem
    return ""


def _timeout_s(path: Path) -> float:
    return TIMEOUT_S + path.stat().st_size / MIN_BYTES_PER_S


def _probe(path: Path, timeout_s: float, kind: str = "") -> None:
    """Run the child; raise ModelError if it fails, with the way out unless only heads fail."""
    what, way_out = f"loading {path}", ": choose another file"
    if kind == HEADS:
        what, way_out = "running them", ""
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "engines.llama.probe_process", str(path), kind],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{what} did not end within {timeout_s:.0f} s{way_out}"
        raise UnfinishedProbeError(message) from None
    if child.returncode == REFUSED:
        raise ModelError(_last_line(child.stdout))
    if child.returncode == -signal.SIGKILL:
        raise UnfinishedProbeError(f"{what} ran out of memory{way_out}")
    if child.returncode:
        raise ModelError(f"{what} {_crash(child)}{way_out and f'{way_out} or download it again'}")


def _environment() -> dict[str, str]:
    """Our environment and import path; keeps ggml from starting a debugger when it aborts."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}


def _crash(child: subprocess.CompletedProcess[bytes]) -> str:
    _, assertion, text = _last_line(child.stderr).partition(": GGML_ASSERT")
    reason = f"{assertion}{text}".removeprefix(": ") or f"exit code {child.returncode}"
    return f"crashes llama.cpp ({reason})"


def _last_line(output: bytes) -> str:
    """The last line that is not blank, safe to display and limited in length."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    texts = [line for line in lines if line] or [""]
    return "".join(char for char in texts[-1] if char.isprintable())[:MAX_REASON]
