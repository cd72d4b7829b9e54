"""The process that fetches one model for the interface: `python -m app.models.pull_child`.

A process of its own, so that stopping is at once, whatever the connection is waiting for: it may be
killed at any moment, and the next one goes on from what has come. Its parent reads one line of JSON
from standard output for each event; when nobody reads them, it ends.

Fetching a model into the cache that Hugging Face's libraries share.

Into that cache, so that no program fetches it a second time: llama.cpp, transformers and `hf` find
it there. The library asks the hub and keeps the cache's order. What it does not do is done here: in
version 2 its downloads begin anew after each interruption, and are not compared with their
checksums. What has come of a file lies where its blob will, as `DIGEST.incomplete`, and the next
attempt goes on from its end.

Fetching a model while something else goes on: what has come, how fast, and how it ended.

Owns what its process tells and the figures a person wants meanwhile. Refuses to know screens.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from app.child_process import AsyncChildProcess, emit
from app.models.hub import RemoteFile, RemoteModel, hub_errors, look_up
from datastores.errors import ModelError, SpecchatError

CHUNK_BYTES = 1 << 20
MAX_FAILED_ATTEMPTS = 5
"""Broken connections in a row, without a byte between them, that are borne."""
RETRY_DELAY_S = 1.0
"""Seconds before the next attempt."""
READ_TIMEOUT_S = 20.0
"""Seconds without a byte after which a connection counts as broken."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Bytes that are here, out of those of all files."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class DownloadFinished:
    """The end: the file to open."""

    path: Path


def download_model(
    offer: RemoteModel, cache: Path
) -> Generator[DownloadProgress | DownloadFinished, None, None]:
    """Fetch a model's files, going on from what is there; ends with `DownloadFinished`.

    Closed or interrupted, it keeps what has come.

    Raises:
        ModelError: the connection broke for good, a file arrived damaged, another process fetches
            it, or the cache cannot be written or has no room; the message says which.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.file_download import repo_folder_name

    folder = cache / repo_folder_name(repo_id=offer.repository, repo_type="model")
    done, paths = 0, []
    with hub_errors(offer.repository), _writing(cache):
        for file in offer.files:
            for have in _fetch(offer, file, folder / "blobs", cache / ".locks" / folder.name):
                yield DownloadProgress(done + have, offer.size)
            done += file.size
            # The blob is there: this makes the link to it, in the library's own way.
            paths.append(
                hf_hub_download(offer.repository, file.path, revision=offer.commit, cache_dir=cache)
            )
        _note_commit(folder, offer.commit)
    yield DownloadFinished(Path(paths[0]))


@contextmanager
def _writing(cache: Path) -> Iterator[None]:
    """Word what the disk can do wrong."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not the system's: huggingface_hub's failures are OSErrors too
            raise
        raise ModelError(
            f"cannot write to {cache}: {error.strerror}; another place can be set as HF_HUB_CACHE"
        ) from error


def _fetch(offer: RemoteModel, file: RemoteFile, blobs: Path, locks: Path) -> Iterator[int]:
    """Bring one blob here; yields how many of its bytes there are."""
    blob = blobs / file.digest
    if blob.exists():
        yield file.size
        return
    for directory in (blobs, locks):
        directory.mkdir(parents=True, exist_ok=True)
    try:
        # The library's own lock: `hf download` of the same file waits, and then finds it.
        with FileLock(locks / f"{file.digest}.lock", timeout=0):
            partial = blobs / f"{file.digest}.incomplete"
            yield from _complete(offer, file, partial)
            os.replace(partial, blob)
    except Timeout:
        raise ModelError(f"another process is fetching {file.path} now: wait for it") from None


def _complete(offer: RemoteModel, file: RemoteFile, partial: Path) -> Iterator[int]:
    """Bring `partial` to its full size, and check it."""
    with partial.open("a+b", buffering=0) as out:
        have = os.fstat(out.fileno()).st_size
        free = shutil.disk_usage(partial.parent).free
        if file.size - have > free:
            raise ModelError(
                f"{file.path} takes {(file.size - have) / 1e9:.1f} GB more, and {free / 1e9:.1f} GB"
                f" are free at {partial.parent}: make room, or set HF_HUB_CACHE to another disk"
            )
        digest = _digest_of(out)
        for piece, start in _persistent(offer, file, have):
            if start == 0:
                out.truncate(0)
                digest = hashlib.sha256()
            out.write(piece)
            digest.update(piece)
            yield start + len(piece)
    if digest.hexdigest() != file.digest:
        partial.unlink()
        raise ModelError(f"{file.path} arrived damaged, its checksum differs: pull it again")


def _persistent(offer: RemoteModel, file: RemoteFile, have: int) -> Iterator[tuple[bytes, int]]:
    """(piece, where it belongs) from byte `have` on, through broken connections."""
    import httpx2

    failures, reason = 0, "it ended early"
    while have < file.size:
        before = have
        try:
            for piece, start in _stream(offer, file, have):
                yield piece, start
                have = start + len(piece)
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
        failures = 0 if have > before else failures + 1
        if failures == MAX_FAILED_ATTEMPTS:
            raise ModelError(
                f"the connection broke off after {have / 1e9:.2f} of {file.size / 1e9:.2f} GB"
                f" ({reason}): pull it again to go on from there"
            )
        if have < file.size:
            time.sleep(RETRY_DELAY_S)


def _stream(offer: RemoteModel, file: RemoteFile, have: int) -> Iterator[tuple[bytes, int]]:
    """One connection's pieces; from the start where the hub does not know ranges."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(offer.repository, file.path, revision=offer.commit)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    with get_session().stream("GET", url, headers=headers, timeout=READ_TIMEOUT_S) as response:
        hf_raise_for_status(response)
        at = have if response.status_code == 206 else 0
        for piece in response.iter_bytes(CHUNK_BYTES):
            yield piece, at
            at += len(piece)
            if at > file.size:
                return  # whatever this is, it is not the file: its checksum will say so


def _digest_of(file: BinaryIO) -> hashlib._Hash:
    """Of all that is in the file; its end is where it stands afterwards."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(CHUNK_BYTES):
        digest.update(piece)
    return digest


def _note_commit(folder: Path, commit: str) -> None:
    """Remember where `main` stands, for programs that are offline."""
    reference = folder / "refs" / "main"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)


RATE_WINDOW_S = 10.0
"""Seconds over which the rate is taken: a shorter one jumps about."""


@dataclass(slots=True)
class ModelDownload:
    """One model on its way here.

    Attributes:
        wanted: as the person gave it.
        name: what the hub calls it; as wanted, before the hub has answered.
        done, total: bytes that are here, and all; 0 before the hub has answered.
        running: whether a process is at it.
        failure: why the last one failed; empty where it did not.
        path: the file to open; None until everything is here.
    """

    wanted: str
    name: str = ""
    done: int = 0
    total: int = 0
    running: bool = False
    failure: str = ""
    path: Path | None = None
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.name = self.name or self.wanted

    @property
    def share(self) -> float:
        """How much of it is here, 0 to 1."""
        return self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float:
        """Bytes per second of late; 0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (before, least), (now, most) = self._seen[0], self._seen[-1]
        return max(most - least, 0) / (now - before) if now > before else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None while unknown."""
        return (self.total - self.done) / self.rate if self.rate else None

    def take(self, told: dict[str, Any], moment: float) -> None:
        """Take in what the process told at `moment`, in seconds of a clock that never goes back."""
        self.name = told.get("name", self.name)
        self.total = told.get("total", self.total)
        self.failure = told.get("failure", self.failure)
        if "path" in told:
            self.path = Path(told["path"])
        if "done" in told:
            self.done = told["done"]
            self._seen.append((moment, self.done))
            while moment - self._seen[0][0] > RATE_WINDOW_S:
                self._seen.popleft()

    async def run(self, cache: Path) -> AsyncGenerator[None]:
        """Fetch it into `cache`, or go on with it; yields whenever something changed.

        Closed or cancelled, it stops at once, and what has come stays.
        """
        self.failure, self.running = "", True
        self._seen.clear()
        yield
        told: dict[str, Any] = {}
        try:
            async with AsyncChildProcess("app.models.download", self.wanted, cache) as child:
                async for told in child:
                    self.take(told, monotonic())
                    yield
                code = await child.code()
        finally:
            self.running = False
        if not {"path", "failure"} & set(told):
            self.failure = f"fetching {self.wanted} broke off (exit code {code}): try again"


def main(arguments: Sequence[str]) -> int:
    """Look up what is wanted and fetch it.

    Args:
        arguments: `ORG/REPO[:QUANT]`; the cache to fetch it into.
    """
    wanted, cache = arguments
    try:
        offer = look_up(wanted)
        emit({"name": f"{offer.repository}:{offer.tag}", "total": offer.size})
        with closing(download_model(offer, Path(cache))) as events:
            for event in events:
                if isinstance(event, DownloadFinished):
                    emit({"path": str(event.path)})
                else:
                    emit({"done": event.done, "total": event.total})
    except SpecchatError as error:
        emit({"failure": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
