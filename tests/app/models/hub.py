"""A stand-in for Hugging Face's hub: the few answers that a download takes, on 127.0.0.1."""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from app.models.download import CHUNK_BYTES
from tests.waiting import TIMEOUT_S

CONTENT = random.Random(1).randbytes(5 * CHUNK_BYTES)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
FORTY_PERCENT = 2 * CHUNK_BYTES
REPOSITORY = "org/model-GGUF"
WANTED = f"{REPOSITORY}:Q4_K_M"
FILES = {
    f"{REPOSITORY}/model-Q4_K_M.gguf": CONTENT,
    f"{REPOSITORY}/model-Q8_0-00001-of-00002.gguf": b"first",
    f"{REPOSITORY}/model-Q8_0-00002-of-00002.gguf": b"second",
    f"{REPOSITORY}/mmproj-F16.gguf": b"eye",
    f"{REPOSITORY}/README.md": b"read me",
    "org/single/single-F16.gguf": b"only",
    "org/weights/model.safetensors": b"no gguf",
}
COMMIT = "c" * 40
PIECE = 1 << 16


@dataclass
class Hub:
    """What the hub holds, how it misbehaves, and what it was asked.

    Attributes:
        files: content by `ORG/REPO/PATH`.
        requests: (method, path, range) of each, in order.
        listed: what a search answers.
        statuses: an HTTP status to answer with, by `ORG/REPO`, and the hub's name for the error.
        breaks: bytes after which the next connections break; used up one by one.
        stall_at: byte after which a connection waits for `go_on`, once it was reached `stalled`.
        ranges: whether it knows them.
        spoil: whether a file's last byte arrives changed.
    """

    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    listed: list[dict[str, object]] = field(default_factory=list)
    statuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    stall_at: int | None = None
    ranges: bool = True
    spoil: bool = False
    stalled: Event = field(default_factory=Event)
    go_on: Event = field(default_factory=Event)
    url: str = ""

    def start(self) -> ThreadingHTTPServer:
        """Serve from now on."""
        hub = self

        class Handler(_Handler):
            served = hub

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def fetches(self) -> list[str]:
        """The ranges of all downloads so far."""
        return [asked for method, _, asked in self.requests if method == "GET" and asked]


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what was asked is kept in `requests`."""

    def _answer(self, body: bool) -> None:
        path, asked = self.path.partition("?")[0], self.headers.get("Range", "")
        self.served.requests.append((self.command, path, asked))
        if path == "/api/models":
            self.served.requests[-1] = (self.command, self.path, asked)
            self._json(self.served.listed)
        elif listed := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            self._list(listed[1])
        elif named := re.fullmatch(rf"/([^/]+/[^/]+)/resolve/{COMMIT}/(.+)", path):
            self._file(f"{named[1]}/{named[2]}", asked, body)
        else:
            self._refuse(404, "EntryNotFound")

    def _list(self, repository: str) -> None:
        if repository in self.served.statuses:
            self._refuse(*self.served.statuses[repository])
            return
        siblings = [
            {
                "rfilename": name.removeprefix(f"{repository}/"),
                "size": len(content),
                "lfs": _lfs(content),
            }
            for name, content in self.served.files.items()
            if name.startswith(f"{repository}/")
        ]
        if not siblings:
            self._refuse(404, "RepoNotFound")
            return
        self._json({"id": repository, "sha": COMMIT, "siblings": siblings})

    def _json(self, answer: object) -> None:
        content = json.dumps(answer).encode()
        self._head(200, len(content), {"Content-Type": "application/json"})
        self.wfile.write(content)

    def _file(self, name: str, asked: str, body: bool) -> None:
        content = self.served.files[name]
        digest = hashlib.sha256(content).hexdigest()
        if self.served.spoil:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.served.ranges else 0
        headers = {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{digest}"',
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(content)),
        }
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._head(206 if start else 200, len(content) - start, headers)
        if body:
            self._send(content, start)

    def _send(self, content: bytes, start: int) -> None:
        hub = self.served
        end = hub.breaks.pop(0) if hub.breaks else len(content)
        self.close_connection = end < len(content)
        try:
            for at in range(start, end, PIECE):
                if hub.stall_at is not None and at >= hub.stall_at:
                    hub.stalled.set()
                    hub.go_on.wait(TIMEOUT_S)
                self.wfile.write(content[at : min(at + PIECE, end)])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the other side was killed, as it was to be

    def _refuse(self, status: int, code: str) -> None:
        self._head(status, 0, {"X-Error-Code": code, "X-Error-Message": code})

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def partial_of(cache: Path, digest: str = DIGEST, repository: str = REPOSITORY) -> Path:
    """Where what has come of a file lies until it is whole."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    return folder / "blobs" / f"{digest}.incomplete"


def _lfs(content: bytes) -> dict[str, object]:
    return {
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "pointerSize": 135,
    }
