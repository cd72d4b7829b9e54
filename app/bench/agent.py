"""`python -m app.bench agent`: a coding agent's session through HTTP endpoints, asked in turn.

Each chat of the session is one task: what the person and the tools say is recorded, the answers are
the server's own, so every endpoint has its own conversation. llama-server takes the same GGUF file,
without drafts and in its n-gram modes, whose pools grow during the session as specchat's stores do.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import psutil

from app.bench.workloads import RecordedChat
from app.config import Config
from app.locations import locate
from datastores.chats.records import ASSISTANT, USER
from datastores.errors import InputError, ModelError

SPECCHAT = "specchat"
PLAIN = "llama-server"
PEER_MODES: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "ngram-mod": (
        *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "6"),
        *("--spec-ngram-mod-n-min", "2", "--spec-ngram-mod-n-max", "16"),
    ),
    "ngram-map-k4v": (
        *("--spec-type", "ngram-map-k4v"),
        *("--spec-ngram-map-k4v-size-n", "4", "--spec-ngram-map-k4v-size-m", "8"),
    ),
}
"""llama-server's options in the modes that were its fastest on chats (`peers/llama_server.py`)."""
START_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class MeasuredServer:
    """A server, and what its answers took.

    Attributes:
        url: the base URL, which ends in `/v1`.
        process: id of the server's process; 0 if it must not be paused.
        seconds: wall time of all requests, as the client sees it.
        prompt_tokens, read_tokens: tokens of the prompts, and those that were not in the KV cache.
    """

    name: str
    url: str
    process: int = 0
    token: str = ""
    requests: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    read_tokens: int = 0
    tokens: int = 0
    generating_ms: float = 0.0
    accepted: int = 0
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, max_tokens: int) -> None:
        """Have the last of `messages` answered, greedily, and append the answer.

        Raises:
            ModelError: the server refused, or is gone.
        """
        body = {"messages": self.messages, "temperature": 0, "max_tokens": max_tokens}
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(
            f"{self.url}/chat/completions", json.dumps(body).encode(), headers
        )
        started = perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ModelError(f"{self.name} refused a request: {error.read()[:500]!r}") from error
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.name} did not answer: {error}") from error
        self._count(answer, perf_counter() - started)
        text = answer["choices"][0]["message"]["content"] or ""
        self.messages.append({"role": ASSISTANT, "content": text})

    def pause(self) -> None:
        """Stop its processes: what a server does while it waits would disturb the others."""
        for one in self._processes():
            one.suspend()

    def go_on(self) -> None:
        """Undo `pause`."""
        for one in self._processes():
            one.resume()

    def _processes(self) -> list[psutil.Process]:
        if not self.process:
            return []
        own = psutil.Process(self.process)
        return [own, *own.children(recursive=True)]

    def _count(self, answer: dict[str, dict[str, int]], seconds: float) -> None:
        timings = answer["timings"]
        self.requests += 1
        self.seconds += seconds
        self.prompt_tokens += answer["usage"]["prompt_tokens"]
        self.read_tokens += timings["prompt_n"]
        self.tokens += timings["predicted_n"]
        self.generating_ms += timings["predicted_ms"]
        self.accepted += timings.get("draft_n_accepted", 0)

    @property
    def ms_per_token(self) -> float:
        """Time of all requests per generated token, as answers differ in length."""
        return 1e3 * self.seconds / max(1, self.tokens)

    def row(self) -> dict[str, object]:
        """The figures so far."""
        passes = self.tokens - self.accepted
        return {
            "server": self.name,
            "requests": self.requests,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "ms_per_token": self.ms_per_token,
            "generating_ms_per_token": self.generating_ms / max(1, self.tokens),
            "tokens_per_step": self.tokens / max(1, passes),
            "read_per_request": self.read_tokens / max(1, self.requests),
            "prompt_per_request": self.prompt_tokens / max(1, self.requests),
        }


def run_session(
    endpoints: Sequence[MeasuredServer], chats: Sequence[RecordedChat], max_tokens: int
) -> Iterator[int]:
    """Ask every endpoint each message of the session, in turn; yields the requests done.

    While one answers, the others are paused.

    The order of the endpoints rotates, so that none always follows the same other one.

    Raises:
        ModelError: a server refused a request, or is gone.
    """
    done = 0
    for chat in chats:
        for one in endpoints:
            one.messages.clear()
        for message in chat.messages:
            if message.role == ASSISTANT:
                continue
            for one in endpoints:
                one.messages.append({"role": message.role, "content": message.content})
            if message.role != USER:
                continue
            first = done % len(endpoints)
            for one in (*endpoints[first:], *endpoints[:first]):
                with _alone(one, endpoints):
                    one.ask(max_tokens)
            done += 1
            yield done


@contextmanager
def _alone(asked: MeasuredServer, endpoints: Sequence[MeasuredServer]) -> Iterator[None]:
    """Within this, no server works but the one that is `asked`."""
    others = [one for one in endpoints if one is not asked]
    with ExitStack() as steps:
        for one in others:
            steps.callback(one.go_on)
            one.pause()
        yield


@contextmanager
def specchat(model: Path, folder: Path, drafters: str) -> Iterator[MeasuredServer]:
    """`specchat serve` with empty stores and the default settings in `folder`.

    Args:
        drafters: what `--drafters` is given, `all` for the default.

    Raises:
        ModelError: it did not start.
    """
    name = SPECCHAT if drafters == "all" else f"{SPECCHAT} {drafters}"
    data = folder / name.replace(" ", "-")
    command = [sys.executable, "-m", "app", "--data-dir", str(data), "--model", str(model)]
    command += ["--drafters", drafters]
    with (
        open(folder / f"{data.name}.log", "wb") as log,
        _running([*command, "serve", "--port", "0"], log.fileno(), piped=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(rb"http://\S+/v1", line):
                token = locate(data).token.read_text().strip()
                yield MeasuredServer(name, found[0].decode(), process.pid, token)
                return
    raise ModelError(f"specchat serve did not start: {log_tail(Path(log.name))}")


@contextmanager
def peer(binary: Path, model: Path, mode: str, folder: Path) -> Iterator[MeasuredServer]:
    """llama-server in one of `PEER_MODES`, with specchat's default context and all cores.

    Raises:
        InputError: `binary` cannot be started.
        ModelError: it did not start to serve.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads, context = str(os.cpu_count()), str(Config().context)
    command = [str(binary), "-m", str(model), "--port", str(port), "-np", "1", "-c", context]
    command += ["-t", threads, "-tb", threads, *PEER_MODES[mode]]
    with (
        open(folder / f"{mode}.log", "wb") as log,
        _running(command, log.fileno()) as process,
    ):
        endpoint = MeasuredServer(mode, f"http://127.0.0.1:{port}/v1", process.pid)
        started = perf_counter()
        while not _is_healthy(port):
            if process.poll() is not None or perf_counter() - started > START_TIMEOUT_S:
                raise ModelError(f"{binary} did not start: {log_tail(Path(log.name))}")
            sleep(0.1)
        yield endpoint


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


def log_tail(log: Path) -> str:
    """The last line of a server's log."""
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextmanager
def _running(
    command: Sequence[str], log: int, *, piped: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose errors go to the file descriptor `log`; ended afterwards."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE if piped else log, stderr=log)
    except OSError as error:
        raise InputError(f"cannot start {command[0]}: {error.strerror}") from error
    with ExitStack() as steps:
        if process.stdout is not None:
            steps.callback(process.stdout.close)
        steps.callback(process.wait)
        steps.callback(process.terminate)
        yield process
