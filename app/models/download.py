"""Downloads a model into the cache that Hugging Face's libraries share.

llama.cpp, transformers and `hf` find it there, so no program downloads it twice. huggingface_hub
names the folders, authenticates, and makes the links of a snapshot. Its own transfer does not
resume: version 2 (2.4.0) deletes an interrupted attempt, and compares sizes but no checksums. So
the transfer is here: the bytes of a file go to `DIGEST.incomplete` next to its future blob, the
next attempt resumes at its end, and it becomes a blob only if its SHA-256 is right.

The interface runs the transfer in a child process (`ModelDownload`; `python -m
app.models.download`), so that it stops at once whatever its connection waits for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from app.models.hub import RemoteFile, RemoteModel, hub_errors, look_up
from datastores.errors import ModelError, SpecchatError
from engines.child_process import AsyncChildProcess, emit, run_child

CHUNK_BYTES = 1 << 20
MAX_FAILED_ATTEMPTS = 5
"""Consecutive connections without a byte after which the download fails."""
RETRY_DELAY_S = 1.0
READ_TIMEOUT_S = 20.0
"""Time without data after which a connection counts as broken."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Bytes downloaded, and of all files."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class DownloadFinished:
    """The download is complete; `path` is the file to open."""

    path: Path


def download_model(
    model: RemoteModel, cache: Path
) -> Generator[DownloadProgress | DownloadFinished, None, None]:
    """Download a model's files, resuming earlier attempts; ends with `DownloadFinished`.

    Received bytes are kept if it is closed or interrupted.

    Raises:
        ModelError: the connection failed too often, a file is damaged, another process downloads
            it, or the cache cannot be written or is full; the message says which.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.file_download import repo_folder_name

    folder = cache / repo_folder_name(repo_id=model.repository, repo_type="model")
    blobs, locks = folder / "blobs", cache / ".locks" / folder.name
    done, paths = 0, []
    with hub_errors(model.repository), _disk_errors(cache):
        for file in model.files:
            for received in _download_blob(model, file, blobs, locks):
                yield DownloadProgress(done + received, model.size)
            done += file.size
            # With the blob in place, this only adds the snapshot's link to it.
            paths.append(
                hf_hub_download(model.repository, file.path, revision=model.commit, cache_dir=cache)
            )
        _store_commit(folder, model.commit)
    yield DownloadFinished(Path(paths[0]))


@contextmanager
def _disk_errors(cache: Path) -> Iterator[None]:
    """Translate the system's errors into ModelError."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # huggingface_hub's errors are OSErrors too
            raise
        raise ModelError(
            f"cannot write to {cache}: {error.strerror}; set HF_HUB_CACHE to another folder"
        ) from error


def _download_blob(model: RemoteModel, file: RemoteFile, blobs: Path, locks: Path) -> Iterator[int]:
    """Download one blob; yields how many of its bytes are received."""
    blob = blobs / file.digest
    if blob.exists():
        yield file.size
        return
    for directory in (blobs, locks):
        directory.mkdir(parents=True, exist_ok=True)
    try:
        # huggingface_hub's own lock, so that `hf download` of the same file waits for it.
        with FileLock(locks / f"{file.digest}.lock", timeout=0):
            incomplete = blobs / f"{file.digest}.incomplete"
            yield from _complete(model, file, incomplete)
            os.replace(incomplete, blob)
    except Timeout:
        raise ModelError(f"another process is downloading {file.path}: wait for it") from None


def _complete(model: RemoteModel, file: RemoteFile, incomplete: Path) -> Iterator[int]:
    """Download the rest of the file, and verify its checksum."""
    with incomplete.open("a+b", buffering=0) as out:
        have = os.fstat(out.fileno()).st_size
        free = shutil.disk_usage(incomplete.parent).free
        if file.size - have > free:
            raise ModelError(
                f"{file.path} needs {(file.size - have) / 1e9:.1f} GB more; {free / 1e9:.1f} GB"
                f" are free at {incomplete.parent}: free some, or set HF_HUB_CACHE to another disk"
            )
        digest = _digest_of(out)
        for piece, start in _receive(model, file, have):
            if start == 0:
                out.truncate(0)
                digest = hashlib.sha256()
            out.write(piece)
            digest.update(piece)
            yield start + len(piece)
    if digest.hexdigest() != file.digest:
        incomplete.unlink()
        raise ModelError(f"{file.path} has the wrong checksum: download it again")


def _receive(model: RemoteModel, file: RemoteFile, have: int) -> Iterator[tuple[bytes, int]]:
    """Chunks and their offsets from byte `have` on; reconnects when a connection breaks."""
    import httpx2

    failures, reason = 0, "it ended early"
    while have < file.size:
        before = have
        try:
            for piece, start in stream(model, file, have):
                yield piece, start
                have = start + len(piece)
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
        failures = 0 if have > before else failures + 1
        if failures == MAX_FAILED_ATTEMPTS:
            raise ModelError(
                f"the connection was lost after {have / 1e9:.2f} of {file.size / 1e9:.2f} GB"
                f" ({reason}): download it again to resume"
            )
        if have < file.size:
            time.sleep(RETRY_DELAY_S)


def stream(
    model: RemoteModel, file: RemoteFile, have: int
) -> Generator[tuple[bytes, int], None, None]:
    """Chunks and their offsets from one connection; from 0 if the server ignores ranges."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(model.repository, file.path, revision=model.commit)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    with get_session().stream("GET", url, headers=headers, timeout=READ_TIMEOUT_S) as response:
        hf_raise_for_status(response)
        at = have if response.status_code == 206 else 0
        for piece in response.iter_bytes(CHUNK_BYTES):
            yield piece, at
            at += len(piece)
            if at > file.size:
                return  # not the file; its checksum will not match


def _digest_of(file: BinaryIO) -> hashlib._Hash:
    """The SHA-256 of the whole file, leaving its position at the end."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    return digest


def _store_commit(folder: Path, commit: str) -> None:
    """Store the commit of `main`, which programs look up when offline."""
    reference = folder / "refs" / "main"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)


RATE_WINDOW_S = 10.0
"""Window of the average rate, which fluctuates over shorter times."""


@dataclass(slots=True)
class ModelDownload:
    """The download of one model in a child process.

    Attributes:
        wanted: the name that the person gave.
        name: the hub's name for it; `wanted` until the hub answers.
        done, total: bytes downloaded, and in all; 0 until the hub answers.
        failure: why the last attempt failed; empty if it did not.
        path: the file to open; None until the download is complete.
    """

    wanted: str
    name: str = ""
    done: int = 0
    total: int = 0
    running: bool = False
    failure: str = ""
    path: Path | None = None
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.name = self.name or self.wanted

    @property
    def share(self) -> float:
        """The share that is downloaded, from 0 to 1."""
        return self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float:
        """Bytes per second over `RATE_WINDOW_S`; 0 while unknown."""
        if len(self._samples) < 2:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return max(last - first, 0) / (end - start) if end > start else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rate; None while it is 0."""
        return (self.total - self.done) / self.rate if self.rate else None

    def update(self, message: dict[str, Any], now: float) -> None:
        """Apply a message of the child, received at `now` of a monotonic clock."""
        self.name = message.get("name", self.name)
        self.total = message.get("total", self.total)
        if "path" in message:
            self.path = Path(message["path"])
        if "done" in message:
            self.done = message["done"]
            self._samples.append((now, self.done))
            while now - self._samples[0][0] > RATE_WINDOW_S:
                self._samples.popleft()

    async def run(self, cache: Path) -> AsyncGenerator[None]:
        """Start or resume the download into `cache`; yields whenever something changes.

        If closed or cancelled, it stops at once, and received bytes stay.
        """
        self.failure, self.running = "", True
        self._samples.clear()
        yield
        try:
            async with AsyncChildProcess("app.models.download", self.wanted, cache) as child:
                async for message in child:
                    self.update(message, monotonic())
                    yield
                code = await child.code()
            if self.path is None:
                self.failure = f"download of {self.wanted} failed (exit code {code}); try again"
        except SpecchatError as error:
            self.failure = str(error)
        finally:
            self.running = False


def download_and_report(arguments: Sequence[str]) -> None:
    """In the child: look up a model, download it, and emit the name, the progress and the path.

    Args:
        arguments: `ORG/REPO[:QUANT]`; the cache to download it into.
    """
    wanted, cache = arguments
    model = look_up(wanted)
    emit({"name": model.name, "total": model.size})
    with closing(download_model(model, Path(cache))) as events:
        for event in events:
            if isinstance(event, DownloadFinished):
                emit({"path": str(event.path)})
            else:
                emit({"done": event.done, "total": event.total})


if __name__ == "__main__":
    run_child(download_and_report)
