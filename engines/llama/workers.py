"""Workers: processes, here or on other machines, that hold layers of a model for llama.cpp.

Both sides are llama.cpp's own RPC backend, which has no encryption and no authentication. If the
connection to a worker is lost, llama.cpp aborts its process. So it connects to a relay in this
process instead, one for each worker: after a loss the relay goes on replying, with zeros, until the
pass is over. Its output is then discarded, and an error names the worker.

The relay knows the form of the protocol: a request is a command (1 byte), a length (8 bytes) and
data; the reply to some commands is a length and data; nothing is sent before the last reply is
complete. It is llama.cpp's `ggml-rpc.cpp`, protocol 7.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import closing
from threading import Thread
from time import monotonic

from llama_cpp import llama_cpp as lib

from datastores.errors import InputError, ModelError
from engines.llama import native
from engines.llama.devices import compute_devices

PROTOCOL = 7
"""The major version of llama.cpp's protocol."""
DEFAULT_PORT = 50052
"""That of llama.cpp's own server."""
LOOPBACK = "127.0.0.1"
MAX_WORKERS = 16
CONNECT_TIMEOUT_S = 5.0
"""A worker serves one connection at a time: longer means that another program uses it."""
LOST_AFTER_S = 20
"""Time without a sign of life after which a worker is lost. While it computes, its system answers
for it."""
LEAST_WAIT_S, MOST_WAIT_S = 20.0, 300.0
"""Bounds of the time without a byte of a reply after which a worker counts as halted: its system
answers for it then, too. A pass has at most 512 rows; at two a second nobody would use a worker."""
MEASURED_BYTES = 4096
"""Shorter exchanges than a pass of one row say nothing of how long a pass takes."""
WAIT_MARGIN = 20.0
"""A reply may take this much longer, for as many bytes, than the slowest so far."""
CHUNK_BYTES = 1 << 20

NO_RPC = "this build of llama.cpp has no RPC: `specchat doctor` shows the one that has"

_HEADER, _LENGTH = struct.Struct("<BQ"), struct.Struct("<Q")
_GET_TENSOR, _HELLO = 8, 14
_HELLO_REQUEST = bytes(24)
"""The transports that this side offers besides TCP: none, as the relay understands no other."""
_ZERO_REPLIES = {
    0: bytes(16),  # no buffer could be allocated
    1: _LENGTH.pack(128),  # alignment
    2: _LENGTH.pack(1 << 40),  # largest buffer
    3: _LENGTH.pack(1 << 12),  # address of a buffer
    7: b"\1",  # a tensor with that hash is there
    9: b"\1",  # a tensor was copied
    11: bytes(16),  # free and total memory
    13: bytes(8),  # bytes of a tensor
    _HELLO: bytes([PROTOCOL, 0, 0, 0]) + bytes(24),
    15: bytes(4),  # devices
}
"""Command → the reply for a lost worker. The length of `_GET_TENSOR`'s is in the request; the
commands that are not here have no reply."""


class Relay:
    """Passes one worker's connections on.

    Attributes:
        problem: why the worker is lost; empty while it is not.
        endpoint: where llama.cpp connects instead.
    """

    def __init__(self, address: str) -> None:
        """Check that the worker at `address` (HOST:PORT) answers, and listen.

        Raises:
            InputError: it is no address.
            ModelError: nobody answers there, or another version.
        """
        self.address = address
        self.problem = ""
        self._host, self._port = parse_address(address)
        self._moved = 0  # bytes since the last result
        self._slowest = 0.0  # seconds per byte of a result; 0 before the first
        self._greet()
        self._listening = socket.create_server((LOOPBACK, 0))
        self.endpoint = f"{LOOPBACK}:{self._listening.getsockname()[1]}"
        Thread(target=self._accept, name=f"worker {address}", daemon=True).start()

    def _greet(self) -> None:
        try:
            with closing(self._connect()) as worker:
                worker.sendall(_HEADER.pack(_HELLO, len(_HELLO_REQUEST)) + _HELLO_REQUEST)
                reply = _receive(worker, _LENGTH.size + len(_ZERO_REPLIES[_HELLO]))
        except TimeoutError as error:
            raise ModelError(
                f"the worker at {self.address} does not answer: another program may be using it"
            ) from error
        except OSError as error:
            raise ModelError(
                f"no worker at {self.address} ({error.strerror or error}): start `specchat worker`"
                " there"
            ) from error
        if reply[_LENGTH.size] != PROTOCOL:
            raise ModelError(
                f"the worker at {self.address} is another version of llama.cpp: install the same"
            )

    def _connect(self) -> socket.socket:
        """A connection to the worker, with a time limit for greeting."""
        worker = socket.create_connection((self._host, self._port), CONNECT_TIMEOUT_S)
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", LOST_AFTER_S // 4),
            ("TCP_KEEPINTVL", LOST_AFTER_S // 4),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", LOST_AFTER_S * 1000),
        ):
            if hasattr(socket, name):
                worker.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return worker

    def _accept(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: socket.socket) -> None:
        """Serve one connection of llama.cpp until it closes it."""
        worker: socket.socket | None = None
        try:
            worker = self._connect()
            worker.settimeout(MOST_WAIT_S)
        except OSError as error:
            self._lose(error)
        try:
            while True:
                command, size = _HEADER.unpack(_receive(connection, _HEADER.size))
                self._request(connection, worker, command, size)
        except OSError:
            pass  # llama.cpp closed it
        finally:
            connection.close()
            if worker is not None:
                worker.close()

    def _request(
        self, connection: socket.socket, worker: socket.socket | None, command: int, size: int
    ) -> None:
        """Pass one request on, and its reply back."""
        last = b""
        self._moved += size
        self._send(worker, _HEADER.pack(command, size))
        while size:
            received = connection.recv(min(size, CHUNK_BYTES))
            if not received:
                raise ConnectionResetError
            size -= len(received)
            self._send(worker, _HELLO_REQUEST if command == _HELLO else received)
            last = (last + received[-_LENGTH.size :])[-_LENGTH.size :]
        if command == _GET_TENSOR:
            self._reply(connection, worker, _LENGTH.unpack(last)[0], b"")
        elif command in _ZERO_REPLIES:
            reply = _ZERO_REPLIES[command]
            self._reply(connection, worker, len(reply), reply)

    def _send(self, worker: socket.socket | None, data: bytes) -> None:
        if worker is None or self.problem:
            return
        try:
            worker.sendall(data)
        except OSError as error:
            self._lose(error)

    def _reply(
        self, connection: socket.socket, worker: socket.socket | None, size: int, instead: bytes
    ) -> None:
        """Pass a reply of `size` bytes back; what is missing of it is zeros, or `instead`."""
        connection.sendall(_LENGTH.pack(size))
        left = size
        try:
            if worker is not None and not self.problem:
                self._wait(worker, size, result=not instead)
                if _LENGTH.unpack(_receive(worker, _LENGTH.size)) != (size,):
                    raise ConnectionResetError("it sent no reply of this version")
                while left:
                    received = worker.recv(min(left, CHUNK_BYTES))
                    if not received:
                        raise ConnectionResetError("it closed the connection")
                    connection.sendall(received)
                    left -= len(received)
        except OSError as error:
            self._lose(error)
        if left == size and instead:
            connection.sendall(instead)
            return
        while left:
            zeros = bytes(min(left, CHUNK_BYTES))
            connection.sendall(zeros)
            left -= len(zeros)

    def _wait(self, worker: socket.socket, size: int, *, result: bool) -> None:
        """Wait for a reply of `size` bytes. A pass whose `result` it is may take longer if more
        bytes are moved for it.

        Raises:
            TimeoutError: the worker halted.
        """
        moved, self._moved = self._moved + size, 0
        likely = WAIT_MARGIN * self._slowest * moved if self._slowest else MOST_WAIT_S
        worker.settimeout(min(MOST_WAIT_S, max(LEAST_WAIT_S, likely)))
        began = monotonic()
        worker.recv(1, socket.MSG_PEEK)
        if result and moved > MEASURED_BYTES:
            self._slowest = max(self._slowest, (monotonic() - began) / moved)

    def _lose(self, error: OSError) -> None:
        if not self.problem:
            native.LOGGER.warning("worker %s: %s", self.address, error)
            what = "does not answer" if isinstance(error, TimeoutError) else "is gone"
            self.problem = (
                f"the worker at {self.address} {what}: start it again, and open the model again"
            )


_relays: dict[str, Relay] = {}
"""By address; llama.cpp keeps what it knows of an endpoint for the life of the process."""


class Workers:
    """The workers of one model, as devices of llama.cpp.

    Attributes:
        names: their addresses, as text.
        devices: what llama.cpp calls them, ended by a null: the value of the model parameter.
    """

    def __init__(self, addresses: str) -> None:
        """Connect to the workers at `addresses`, which are separated by commas.

        Raises:
            InputError: one is no address.
            ModelError: a worker cannot be used, or this build of llama.cpp has no RPC.
        """
        if not lib.llama_supports_rpc():
            raise ModelError(NO_RPC)
        self._relays = [_relay(address.strip()) for address in addresses.split(",")]
        if len(self._relays) > MAX_WORKERS:
            raise InputError(f"at most {MAX_WORKERS} workers, not {len(self._relays)}")
        self.names = ",".join(relay.address for relay in self._relays)
        found = [device for relay in self._relays for device in _devices(relay)]
        self.require()
        self.devices = (ctypes.c_void_p * (len(found) + 1))(*found, None)

    def require(self) -> None:
        """Check that no worker was lost.

        Raises:
            ModelError: one was.
        """
        for relay in self._relays:
            if relay.problem:
                raise ModelError(relay.problem)


def _relay(address: str) -> Relay:
    relay = _relays.get(address)
    if relay is None or relay.problem:
        relay = _relays[address] = Relay(address)
    return relay


def _devices(relay: Relay) -> list[int]:
    """Addresses of llama.cpp's objects for the devices of a worker."""
    library = lib._lib  # these calls wait for the relay, and release the interpreter lock
    library.ggml_backend_reg_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
    registry = _ADD_SERVER(_address_of("ggml_backend_rpc_add_server"))(relay.endpoint.encode())
    if not registry:
        raise ModelError(relay.problem or f"the worker at {relay.address} offers no device")
    pointer = ctypes.c_void_p(registry)
    count = library.ggml_backend_reg_dev_count(pointer)
    return [
        library.ggml_backend_reg_dev_get(pointer, ctypes.c_size_t(index)) for index in range(count)
    ]


_ADD_SERVER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_START_SERVER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
)


def _address_of(name: str) -> int:
    """The address of a function of the RPC backend, which may be a library of its own."""
    library = lib._lib
    library.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    library.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
    registry = ctypes.c_void_p(library.ggml_backend_reg_by_name(b"RPC"))
    return int(library.ggml_backend_reg_get_proc_address(registry, name.encode()))


def run_worker(host: str, port: int, threads: int) -> None:
    """Serve until the process is killed, on this machine's graphics cards or else its processor.

    Returns if it cannot listen there; llama.cpp printed why.

    Raises:
        ModelError: this build of llama.cpp has no RPC.
    """
    if not lib.llama_supports_rpc():
        raise ModelError(NO_RPC)
    devices = compute_devices()
    array = (ctypes.c_void_p * len(devices))(*(device.value for device in devices))
    start = _START_SERVER(_address_of("ggml_backend_rpc_start_server"))
    start(f"{host}:{port}".encode(), None, threads, len(devices), ctypes.addressof(array))


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `HOST` or `[IPv6]:PORT`.

    Raises:
        InputError: it is none of these.
    """
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InputError(f"a worker's address is HOST:PORT, not {address!r}")
    return host, int(port)


def _receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes.

    Raises:
        ConnectionResetError: the other side closed the connection.
    """
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("it closed the connection")
        received += piece
    return received
