"""Uvicorn, without its clock: at rest nothing wakes up.

Uvicorn's own main loop looks ten times a second whether it should stop. Here it waits for that.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from datastores.errors import InputError

HEADER_TIMEOUT_S = 20
"""Longest time for sending the head of a request, the first of a connection or a later one."""
KEEP_ALIVE_S = 30
"""Time after which an unused connection is closed."""
STOP_TIMEOUT_S = 3
"""Longest time that answers in progress get when the server is stopped."""
BACKLOG = 512


class TimedProtocol(H11Protocol):
    """Closes connections that send no request, or begin one and do not go on."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self.cycle is not None and self.cycle.response_complete:
            self._await_request()
        super().data_received(data)

    def _await_request(self) -> None:
        self.loop.call_later(HEADER_TIMEOUT_S, self._close_unless_asked, self.cycle)

    def _close_unless_asked(self, last: object) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.close()


class QuietServer(uvicorn.Server):
    """Serves until SIGINT or SIGTERM."""

    def __init__(self, app: ASGIApp, on_stop: Callable[[], object]) -> None:
        """`on_stop` is called when the server begins to stop."""
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
            )
        )
        self._on_stop = on_stop
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Wait for the end."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._stopping.wait()
        self._on_stop()

    def stop(self) -> None:
        """End the server, on any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; at the second signal without waiting for answers."""
        self.force_exit = self.force_exit or self.should_exit
        self.stop()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Within this, signals end the server. They are not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address `host`."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(address[4][0]).is_loopback for address in found)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes any that is free.

    Raises:
        InputError: the address is in use, or is none of this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot serve at {host}, port {port}: {reason}; choose another --host or --port"
        ) from error
