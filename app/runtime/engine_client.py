"""Asks a process that has the model open, through its socket, instead of loading the model.

Imports no more than a request and its answer need: starting the command is most of the wait.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Generator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from app.conversation.events import Event
from app.locations import Locations
from app.runtime.wire import (
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    STOP,
    Accepted,
    AskRequest,
    Done,
    Failed,
    MessageError,
    WireMessage,
    decode,
    encode,
)
from datastores.errors import ModelError

SOCKET_SUFFIX = ".sock"
HAS_SOCKETS = hasattr(socket, "AF_UNIX")
"""Windows has none in Python: every command loads its model there."""
REPLY_TIMEOUT_S = 2.0
"""Time until the request is accepted. A process that was stopped (Ctrl+Z) accepts nothing."""
_CREDENTIALS = struct.Struct("3i")
"""Linux's `struct ucred`: process, user and group of the other side."""

ENDED = "the specchat that was answering ended; the chat keeps what it wrote"


class OpenEngine:
    """An engine in another process, which has accepted a request."""

    def __init__(self, connection: socket.socket, stream: BinaryIO, accepted: Accepted) -> None:
        self.waiting = accepted.waiting
        self._connection = connection
        self._stream = stream

    def events(self) -> Generator[Event]:
        """The events of the answer. `Declined` comes alone: the model was closed since.

        Raises:
            ModelError: the other process ended.
            SpecchatError: as in the other process.
        """
        with self._connection, self._stream:
            while True:
                try:
                    message = _read(self._stream)
                except (OSError, MessageError) as error:
                    raise ModelError(ENDED) from error
                if isinstance(message, Done):
                    return
                if isinstance(message, Failed):
                    raise message.error()
                if isinstance(message, AskRequest | Accepted):
                    raise ModelError(ENDED)
                yield message

    def stop(self) -> None:
        """Stop the answer; what was generated is kept."""
        with suppress(OSError):  # it ended: `events` says so
            self._connection.sendall(STOP)


def open_engine(request: AskRequest) -> OpenEngine | None:
    """The first process that accepts `request`; None if there is none."""
    line = encode(request)
    if not HAS_SOCKETS or len(line) > MAX_REQUEST_BYTES:
        return None
    for path in sockets(request.locations):
        with ExitStack() as closing:
            connection = closing.enter_context(socket.socket(socket.AF_UNIX))
            try:
                connection.settimeout(REPLY_TIMEOUT_S)
                connection.connect(str(path))
                require_own(connection)
                connection.sendall(line)
                stream = closing.enter_context(connection.makefile("rb"))
                reply = _read(stream)
                connection.settimeout(None)
            except (OSError, MessageError):
                continue
            if isinstance(reply, Accepted):
                closing.pop_all()
                return OpenEngine(connection, stream, reply)
    return None


def sockets(locations: Locations) -> list[Path]:
    """The sockets of all processes that listen, or that were killed, the newest last."""
    folder = locations.sockets
    try:
        status = folder.lstat()
        if status.st_uid != os.geteuid():
            return []
        return sorted(folder.glob(f"*{SOCKET_SUFFIX}"))
    except OSError:
        return []


def require_own(connection: socket.socket) -> None:
    """Check that the other side belongs to this user, where the system tells.

    Raises:
        PermissionError: it does not.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return  # the socket's mode and its folder's owner protect it
    got = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(got)[1] != os.geteuid():
        raise PermissionError("the socket is another user's")


def _read(stream: BinaryIO) -> WireMessage:
    return decode(stream.readline(MAX_MESSAGE_BYTES))
