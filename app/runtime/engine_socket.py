"""Lets commands use the model that is open in this process: listens on a Unix socket.

The socket is the user's own (mode 0600, in a folder of mode 0700, and the other side is checked),
and a request is bounded and validated before anything is done. A thread of its own serves all
connections, so that neither the screen nor an answer waits for a command; it sleeps while there is
none. Answers are written on the model's thread, in turn with the person's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from threading import Thread

from app.conversation.events import Declined
from app.locations import Locations
from app.runtime.engine_client import HAS_SOCKETS, SOCKET_SUFFIX, require_own, sockets
from app.runtime.model_thread import ModelThread
from app.runtime.wire import (
    MAX_REQUEST_BYTES,
    Accepted,
    AskRequest,
    Done,
    Failed,
    MessageError,
    WireMessage,
    decode,
    encode,
)
from datastores.errors import ModelError, SpecchatError, StoreError

MAX_CONNECTIONS = 16
"""Further commands load the model themselves."""
REQUEST_TIMEOUT_S = 10.0
"""Time for sending a request."""
CLOSE_TIMEOUT_S = 1.0
"""Longest time that `EngineSocket.close` waits for the connections."""

CLOSED = "the specchat that was answering was closed; the chat keeps what it wrote"

NotifyCommands = Callable[[int], object]
"""Called with the number of commands that are being answered, on the socket's thread."""


class EngineSocket:
    """The socket of one process, from `open` to `close`."""

    def __init__(
        self,
        locations: Locations,
        model_thread: ModelThread,
        notify: NotifyCommands = lambda commands: None,
    ) -> None:
        self._locations = locations
        self._model_thread = model_thread
        self._notify = notify
        self._path = locations.sockets / f"{token_hex(4)}{SOCKET_SUFFIX}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread()
        self._closing = asyncio.Event()
        self._listening: socket.socket | None = None
        self._connections = 0
        self._commands = 0

    def open(self) -> None:
        """Listen, where the system has Unix sockets, and remove sockets of killed processes.

        Raises:
            StoreError: it cannot listen; commands load the model themselves.
        """
        if not HAS_SOCKETS:
            return
        try:
            _make_own(self._path.parent)
            _remove_dead(self._locations)
            self._listening = _listen(self._path)
        except OSError as error:
            raise StoreError(
                f"`specchat ask` cannot use this model and loads its own: {self._path}:"
                f" {error.strerror or error}"
            ) from error
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(
            target=self._run, args=(self._loop,), name="engine socket", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the commands' answers, which end with an error, and remove the socket."""
        if self._loop is None:
            return
        self._path.unlink(missing_ok=True)
        self._call(self._closing.set)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve())

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call `function` on the socket's thread; not at all once it ended: nobody listens then."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function, *arguments)

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(
            self._connected, sock=self._listening, limit=MAX_REQUEST_BYTES
        )
        await self._closing.wait()
        server.close()  # the runner cancels the connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one command; whatever it does, nothing is left of it."""
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                require_own(writer.get_extra_info("socket"))
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    line = await reader.readline()
                await self._reply(line, reader, writer)
        except (OSError, ValueError):
            pass  # it is gone, too slow, somebody else's, or sent too much
        finally:
            self._connections -= 1
            writer.close()

    async def _reply(
        self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # Imported here: what answers is imported with the model, after the first frame.
        from app.runtime.command_answer import mismatch

        try:
            request = decode(line)
            if not isinstance(request, AskRequest):
                raise MessageError("not a request")
            reason = mismatch(self._model_thread.model, self._locations, request)
        except SpecchatError as error:
            reason = str(error)
        if reason:
            writer.write(encode(Declined(reason)))
            await writer.drain()
            return
        assert isinstance(request, AskRequest)
        writer.write(encode(Accepted(waiting=self._model_thread.is_answering)))
        self._count(1)
        try:
            await self._answer(request, reader, writer)
        finally:
            self._count(-1)

    async def _answer(
        self, request: AskRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send the events of the answer as they come."""
        from app.runtime.command_answer import answer_in_turn

        lines, thread = asyncio.Queue[bytes | None](), self._model_thread
        send = partial(self._call, lines.put_nowait)
        thread.touch()
        answer = thread.ask(
            lambda _: answer_in_turn(thread.model, self._locations, request),
            lambda event: send(encode(event)),
        )
        answer.add_done_callback(lambda done: send(encode(_end(done))))
        answer.add_done_callback(lambda done: send(None))
        stopping = asyncio.create_task(self._stop_when_asked(reader, answer))
        try:
            while (line := await lines.get()) is not None:
                writer.write(line)
                await writer.drain()
        except asyncio.CancelledError:
            writer.write(encode(Failed(ModelError.__name__, CLOSED)))
            raise
        finally:
            stopping.cancel()
            thread.stop(answer)

    async def _stop_when_asked(self, reader: asyncio.StreamReader, answer: Future[None]) -> None:
        """Stop the answer at the next line of the command, or at its end."""
        with suppress(OSError, ValueError):
            await reader.readline()
        self._model_thread.stop(answer)

    def _count(self, change: int) -> None:
        self._commands += change
        self._notify(self._commands)


def _end(done: Future[None]) -> WireMessage:
    """The last message about an answer."""
    error = None if done.cancelled() else done.exception()
    if error is None:
        return Done()
    if isinstance(error, SpecchatError):
        return Failed(type(error).__name__, str(error))
    return Failed(ModelError.__name__, f"the answer failed: {type(error).__name__}: {error}")


def _make_own(folder: Path) -> None:
    """Create the sockets' folder, or check that it is this user's and nobody else's.

    Raises:
        OSError: it is not.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of yours")
    folder.chmod(0o700)


def _remove_dead(locations: Locations) -> None:
    """Remove sockets of processes that were killed: nobody listens there any more."""
    for path in sockets(locations):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                path.unlink(missing_ok=True)
            except OSError:
                pass  # busy, so alive


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`, which appears there only once it listens."""
    unfinished = path.with_suffix(".new")
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(unfinished))
        unfinished.chmod(0o600)
        listening.listen()
        unfinished.rename(path)
    except OSError:
        listening.close()
        unfinished.unlink(missing_ok=True)
        raise
    return listening
