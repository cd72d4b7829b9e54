"""Workers: the relay with a scripted worker; llama.cpp with two real ones, one of which dies."""

from __future__ import annotations

import logging
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread

import pytest
from llama_cpp import llama_cpp as lib

from app.models.discovery import embedded
from datastores.errors import InputError, ModelError
from engines.draft_tree import chain
from engines.llama import devices
from engines.llama.build import has_rpc
from engines.llama.model import load
from engines.llama.target import LlamaTarget
from engines.llama.workers import LOOPBACK, NO_RPC, PROTOCOL, Relay, Workers, parse_address
from tests.real_models import real_model
from tests.waiting import TIMEOUT_S, until

ROOT = Path(__file__).parents[3]
HEADER, LENGTH = struct.Struct("<BQ"), struct.Struct("<Q")
GET_ALIGNMENT, SET_TENSOR, GET_TENSOR, COPY_TENSOR, HELLO, DEVICE_COUNT = 1, 6, 8, 9, 14, 15

Serve = Callable[[socket.socket], None]


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


def greet(connection: socket.socket, version: int = PROTOCOL) -> None:
    command, size = HEADER.unpack(read(connection, HEADER.size))
    assert (command, read(connection, size)) == (HELLO, bytes(24))
    connection.sendall(LENGTH.pack(28) + bytes([version, 0, 0, 0]) + bytes(24))


class ScriptedWorker:
    """Serves connections, one after the other, each with the next of some functions."""

    def __init__(self, *serve: Serve) -> None:
        self._listening = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listening.getsockname()[1]}"
        self._thread = Thread(target=self._run, args=(serve,), daemon=True)
        self._thread.start()

    def _run(self, serve: tuple[Serve, ...]) -> None:
        for one in serve:
            connection, _ = self._listening.accept()
            with connection:
                one(connection)
        self._listening.close()

    def close(self) -> None:
        self._thread.join(TIMEOUT_S)


def connected(relay: Relay) -> socket.socket:
    host, _, port = relay.endpoint.partition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.sendall(HEADER.pack(HELLO, 24) + b"\xff" * 24)
    reply = read(connection, 36)
    assert (reply[:8], reply[8]) == (LENGTH.pack(28), PROTOCOL)
    return connection


def ask(connection: socket.socket, command: int, data: bytes) -> bytes:
    connection.sendall(HEADER.pack(command, len(data)) + data)
    return read(connection, *LENGTH.unpack(read(connection, LENGTH.size)))


TENSOR = bytes(300)


def wants(size: int) -> bytes:
    """The request for `size` bytes of a tensor."""
    return TENSOR + LENGTH.pack(0) + LENGTH.pack(size)


def test_requests_and_replies_pass_unchanged() -> None:
    got: list[tuple[int, bytes]] = []
    content = bytes(range(256)) * 20_000

    def serve(connection: socket.socket) -> None:
        greet(connection)
        for reply in (None, content, b"\0"):
            command, size = HEADER.unpack(read(connection, HEADER.size))
            got.append((command, read(connection, size)))
            if reply is not None:
                connection.sendall(LENGTH.pack(len(reply)) + reply)

    with closing(ScriptedWorker(greet, serve)) as worker:
        relay = Relay(worker.address)
        with connected(relay) as connection:
            connection.sendall(HEADER.pack(SET_TENSOR, len(content)) + content)
            assert ask(connection, GET_TENSOR, wants(len(content))) == content
            assert ask(connection, COPY_TENSOR, TENSOR) == b"\0"
    assert got == [(SET_TENSOR, content), (GET_TENSOR, wants(len(content))), (COPY_TENSOR, TENSOR)]
    assert relay.problem == ""


def test_a_lost_worker_is_answered_for_until_the_pass_is_over() -> None:
    def die_in_mid_reply(connection: socket.socket) -> None:
        greet(connection)
        _, size = HEADER.unpack(read(connection, HEADER.size))
        read(connection, size)
        connection.sendall(LENGTH.pack(5_000_000) + b"half")

    with closing(ScriptedWorker(greet, die_in_mid_reply)) as worker:
        relay = Relay(worker.address)
        with connected(relay) as connection:
            assert ask(connection, GET_TENSOR, wants(5_000_000)) == b"half".ljust(5_000_000, b"\0")
            connection.sendall(HEADER.pack(SET_TENSOR, 400) + bytes(400))
            assert ask(connection, GET_TENSOR, wants(3)) == bytes(3)
            assert ask(connection, COPY_TENSOR, TENSOR) == b"\1"
            assert LENGTH.unpack(ask(connection, GET_ALIGNMENT, bytes(4)))[0] > 0
        with connected(relay) as connection:
            assert ask(connection, DEVICE_COUNT, b"") == bytes(4), "a new connection, too"
    assert relay.problem.startswith(f"the worker at {worker.address} is gone")


def test_a_worker_that_halts_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its system keeps the connection open, and takes requests for it."""
    monkeypatch.setattr("engines.llama.workers.MOST_WAIT_S", 0.1)
    ended = Event()

    def halt(connection: socket.socket) -> None:
        greet(connection)
        ended.wait(TIMEOUT_S)

    with closing(ScriptedWorker(greet, halt)) as worker:
        relay = Relay(worker.address)
        with connected(relay) as connection:
            assert ask(connection, GET_TENSOR, wants(9)) == bytes(9)
        ended.set()
    assert relay.problem.startswith(f"the worker at {worker.address} does not answer")


def test_a_slow_worker_may_take_as_long_for_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait follows the slowest pass, by the bytes that are moved for it."""
    monkeypatch.setattr("engines.llama.workers.LEAST_WAIT_S", 0.001)
    pause = Event()

    def compute_slowly(connection: socket.socket) -> None:
        greet(connection)
        for seconds in (0.1, 0.4):
            for _ in range(2):
                _, size = HEADER.unpack(read(connection, HEADER.size))
                read(connection, size)
            pause.wait(seconds)
            connection.sendall(LENGTH.pack(9) + b"x" * 9)

    with closing(ScriptedWorker(greet, compute_slowly)) as worker:
        relay = Relay(worker.address)
        with connected(relay) as connection:
            for size in (10_000, 40_000):
                connection.sendall(HEADER.pack(SET_TENSOR, size) + bytes(size))
                assert ask(connection, GET_TENSOR, wants(9)) == b"x" * 9
    assert not relay.problem


def test_a_reply_of_another_length_is_a_loss() -> None:
    def babble(connection: socket.socket) -> None:
        greet(connection)
        read(connection, HEADER.size + len(TENSOR))
        connection.sendall(LENGTH.pack(1 << 60) + b"x" * 100)

    with closing(ScriptedWorker(greet, babble)) as worker:
        relay = Relay(worker.address)
        with connected(relay) as connection:
            assert ask(connection, COPY_TENSOR, TENSOR) == b"\1"
    assert relay.problem


def test_nobody_and_another_version_are_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as closed:
        address = f"{LOOPBACK}:{closed.getsockname()[1]}"
    with pytest.raises(ModelError, match=f"no worker at {address} .*start `specchat worker`"):
        Relay(address)
    with (
        closing(ScriptedWorker(lambda connection: greet(connection, 8))) as worker,
        pytest.raises(ModelError, match="another version"),
    ):
        Relay(worker.address)


def test_a_busy_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.llama.workers.CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server((LOOPBACK, 0)) as busy:
        address = f"{LOOPBACK}:{busy.getsockname()[1]}"
        with pytest.raises(ModelError, match="another program may be using it"):
            Relay(address)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("host:1", ("host", 1)),
        ("10.0.0.2", ("10.0.0.2", 50052)),
        ("[::1]:5", ("::1", 5)),
        ("[::1]", ("::1", 50052)),
    ],
)
def test_addresses(address: str, found: tuple[str, int]) -> None:
    assert parse_address(address) == found


@pytest.mark.parametrize("address", ["", ":1", "host:", "host:0", "host:x", "host:70000", "host:²"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        parse_address(address)


def test_a_build_with_rpc_alone_has_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(lib, "llama_supports_rpc", lambda: True)
    monkeypatch.setattr(devices, "_typed_devices", lambda library, types: [])
    assert not devices.offloads()
    monkeypatch.setattr(devices, "_typed_devices", lambda library, types: [object()])
    assert devices.offloads()


def test_exact_mode_needs_one_machine() -> None:
    with pytest.raises(ModelError, match="--exact needs one machine"):
        load(embedded(), exact=True, workers="host:1")


@pytest.mark.skipif(has_rpc(), reason="this llama.cpp has RPC")
def test_a_build_without_rpc_says_so() -> None:
    with pytest.raises(ModelError, match=re.escape(NO_RPC)):
        Workers("host:1")


class RealWorker:
    """A `specchat worker` process."""

    def __init__(self) -> None:
        with socket.create_server((LOOPBACK, 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "app", "worker", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        until(self._listens)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def _listens(self) -> bool:
        assert self.process.poll() is None
        try:
            with socket.create_connection((LOOPBACK, self.port)):
                return True
        except OSError:
            return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def workers() -> Iterator[list[RealWorker]]:
    with ExitStack() as running:
        yield [running.enter_context(closing(RealWorker())) for _ in range(2)]


def greedy(target: LlamaTarget, prompt: list[int], count: int) -> list[int]:
    """The likeliest `count` tokens after `prompt`, one pass each."""
    list(target.prefill(prompt))
    tokens = [int(target.last_row.logits[0].argmax())]
    while len(tokens) < count:
        rows = target.verify(chain(tokens[-1], [], 0))
        tokens.append(int(rows.logits[0].argmax()))
        target.commit([0])
    return tokens


needs_rpc = pytest.mark.skipif(not has_rpc(), reason="this llama.cpp has no RPC")


@needs_rpc
def test_layers_are_spread_and_the_text_is_the_same(
    workers: list[RealWorker], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same kernel for attention, which a model on this machine alone chooses by width."""
    path = real_model("SmolLM2*")
    monkeypatch.setattr("engines.llama.context.MIN_PLAIN_WIDTH", 1 << 16)
    caplog.set_level(logging.DEBUG, "specchat.llama")
    spread = load(path, context_length=512, workers=",".join(one.address for one in workers))
    sizes = re.findall(r"RPC\d+\S* model buffer size = +([\d.]+) MiB", caplog.text)
    assert len(sizes) == 2
    assert all(float(size) > 10 for size in sizes)
    local = load(path, context_length=512, gpu_layers=0)
    prompt = local.vocabulary.encode("A tar archive is a file that")
    assert greedy(spread.target, prompt, 24) == greedy(local.target, prompt, 24)


@needs_rpc
def test_a_worker_that_dies_is_an_error_and_the_process_lives(workers: list[RealWorker]) -> None:
    path = real_model("SmolLM2*")
    spread = load(path, context_length=512, workers=",".join(one.address for one in workers))
    prompt = spread.vocabulary.encode("A tar archive is a file that")
    killing = Thread(
        target=_stop_while_it_decodes,
        args=(spread.target, len(prompt), workers[1], signal.SIGKILL),
    )
    killing.start()
    with pytest.raises(ModelError, match=f"{workers[1].address} is gone"):
        greedy(spread.target, prompt, 400)
    killing.join()
    with pytest.raises(ModelError, match="is gone"):
        greedy(spread.target, prompt, 1)


@needs_rpc
def test_a_worker_that_halts_is_an_error(
    workers: list[RealWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = real_model("SmolLM2*")
    spread = load(path, context_length=512, workers=",".join(one.address for one in workers))
    monkeypatch.setattr("engines.llama.workers.LEAST_WAIT_S", 0.5)
    prompt = spread.vocabulary.encode("A tar archive is a file that")
    halting = Thread(
        target=_stop_while_it_decodes,
        args=(spread.target, len(prompt), workers[1], signal.SIGSTOP),
    )
    halting.start()
    with pytest.raises(ModelError, match=f"{workers[1].address} does not answer"):
        greedy(spread.target, prompt, 400)
    halting.join()


def _stop_while_it_decodes(
    target: LlamaTarget, begun: int, worker: RealWorker, how: signal.Signals
) -> None:
    until(lambda: len(target.tokens) > begun + 5)
    worker.process.send_signal(how)
