"""Child processes of this program: modules that run in a process of their own and report to it.

The parent starts a child and reads its messages: on a thread (`ChildProcess`), in an event loop
(`AsyncChildProcess`), or not at all (`start_detached`). The child runs under `run_child`, which
sets its limits, reports its errors by name, and keeps library output off its standard output.

A message is one line of JSON on standard output. A request is a line `[message, length]` and that
many bytes on standard input. A child may be killed at any time. It exits by itself when its parent
is gone: at its next message, or at the end of its requests.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

import psutil

from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

MAX_LINE_BYTES = 2**28
"""The longest message accepted: the last one of an import names everything that was skipped."""

LOWEST_PRIORITY = 19
"""The niceness at which a child runs only when the processor is idle."""

_DARWIN_PROCESS, _DARWIN_BACKGROUND = 4, 0x1000
"""PRIO_DARWIN_PROCESS and PRIO_DARWIN_BG of macOS's sys/resource.h, which Python does not name."""

TIMED_OUT = 1 if sys.platform == "win32" else -signal.SIGPROF
"""The exit code of a child that exceeds `limit_time`."""

_ERROR = "raised"
"""The key that marks a message as an error; its value is the name of the class."""

_output: TextIO = sys.stdout
"""Where `emit` writes; `run_child` replaces it."""


class ChildProcess:
    """A running child, read by one thread; killed at the end of `with`."""

    def __init__(self, module: str, *arguments: object, requests: bool = False) -> None:
        """Start `python -m module arguments…`; `requests`: whether it takes requests."""
        self._process = _start(module, arguments, PIPE, stdin=PIPE if requests else DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """The next message, until the child exits; one that is too long kills it.

        Raises:
            SpecchatError: the child reported an error, which is raised as the same class.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline(MAX_LINE_BYTES)
        if not _is_complete(line):
            if len(line) == MAX_LINE_BYTES:
                self.stop()  # it would wait forever for the rest to be read
            raise StopIteration
        return _decode(line)

    def send(self, message: object, content: bytes = b"") -> None:
        """Send a request; its answers are the next messages."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has exited, so there is no answer to read either
            self._process.stdin.write(json.dumps([message, len(content)]).encode() + b"\n")
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def request(self, message: object, content: bytes = b"") -> Any:
        """Send a request and wait for the answer, the next message.

        Raises:
            TimeoutError: the child exceeded the limit of `receive_requests`.
            EOFError: it exited for another reason.
            SpecchatError: it reported an error; it accepts further requests.
        """
        self.send(message, content)
        for answer in self:
            return answer
        raise TimeoutError if self.code() == TIMED_OUT else EOFError

    def is_running(self) -> bool:
        """Whether it has not exited yet."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def pause(self) -> None:
        """Suspend it until `resume`; it keeps its memory and locks."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).suspend()

    def resume(self) -> None:
        """Continue after `pause`."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).resume()

    def stop(self) -> None:
        """Kill it, from any thread. Messages already written can still be read."""
        self._process.kill()

    def close(self) -> None:
        """Kill it and wait until it has exited."""
        self.stop()
        self._process.communicate()

    def code(self) -> int:
        """Wait for its exit code, which is negative if a signal ended it."""
        return self._process.wait()


class AsyncChildProcess:
    """A running child, read by an event loop; killed at the end of `async with`."""

    def __init__(self, module: str, *arguments: object) -> None:
        """Prepare `python -m module arguments…`, which `async with` starts."""
        self._command = _command(module, arguments)
        self._process: Process

    async def __aenter__(self) -> Self:
        # Imported here: commands that run no event loop import this module too.
        from asyncio import create_subprocess_exec

        self._process = await create_subprocess_exec(
            *self._command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
            env=child_environment(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill it and wait until it has exited, even if cancelled meanwhile.

        Raises:
            CancelledError: the wait was cancelled; the process has exited nevertheless.
        """
        from asyncio import CancelledError, ensure_future, shield

        with suppress(ProcessLookupError):
            self._process.kill()
        # Drain its output too: the pipe is open until then, and the loop may be closed next.
        ended = ensure_future(self._process.communicate())
        cancelled: CancelledError | None = None
        while not ended.done():
            try:
                await shield(ended)
            except CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """The next message, until the child exits.

        Raises:
            SpecchatError: the child reported an error, which is raised as the same class.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not _is_complete(line):
            raise StopAsyncIteration
        return _decode(line)

    async def code(self) -> int:
        """Wait for its exit code, which is negative if a signal ended it."""
        return await self._process.wait()


def start_detached(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a child whose messages are discarded and that outlives this process."""
    return _start(module, arguments, DEVNULL)


def run_child(
    main: Callable[[Sequence[str]], object], *, niceness: int = 0, memory_bytes: int = 0
) -> NoReturn:
    """In a child: run `main` with the process's arguments and exit, with code 1 after an error.

    Args:
        niceness: lowers the priority, at most by 19.
        memory_bytes: limit of the address space; 0 for none.
    """
    _claim_output()
    _lower_priority(niceness)
    limit_memory(memory_bytes)
    try:
        main(sys.argv[1:])
    except SpecchatError as error:
        emit_error(error)
        sys.exit(1)
    sys.exit(0)


def emit(message: object) -> None:
    """In a child: send a message that JSON can represent.

    Exits if nobody reads it, since the parent is gone.
    """
    try:
        print(json.dumps(message), file=_output, flush=True)
    except BrokenPipeError:
        os._exit(1)


def emit_error(error: SpecchatError) -> None:
    """In a child: send an error, which is raised in the parent."""
    emit({_ERROR: type(error).__name__, "message": str(error)})


def receive_requests(timeout_s: float = 0) -> Iterator[tuple[Any, bytes]]:
    """In a child: message and content of each request, until the parent closes the pipe.

    The process is ended if the caller spends more than `timeout_s` on one request (`limit_time`);
    0 for no limit.
    """
    requests = sys.stdin.buffer
    while _is_complete(line := requests.readline()):
        message, length = json.loads(line)
        content = requests.read(length)
        limit_time(timeout_s)
        yield message, content
        limit_time(0)


def limit_time(seconds: float) -> None:
    """In a child: have the system end it after this much processor time; 0 removes the limit.

    Each call replaces the previous limit. Windows counts wall time instead. The exit code is
    `TIMED_OUT`.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def _start(
    module: str, arguments: tuple[object, ...], stdout: int, stdin: int = DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(module, arguments),
        stdin=stdin,
        stdout=stdout,
        stderr=DEVNULL,
        start_new_session=True,
        env=child_environment(),
    )


def _command(module: str, arguments: tuple[object, ...]) -> list[str]:
    # -P: the working folder may be untrusted and hold a json.py.
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment() -> dict[str, str]:
    """The environment of this process with its import path, which Python may not find by itself.

    Relative parts, such as the working folder, are left out: they may be untrusted or deleted.
    """
    path = os.pathsep.join(filter(os.path.isabs, sys.path))
    return {**os.environ, "PYTHONPATH": path}


def _is_complete(line: bytes) -> bool:
    """False at the end of the output, and for a line cut short when the process died."""
    return line.endswith(b"\n")


def _decode(line: bytes) -> Any:
    message = json.loads(line)
    if isinstance(message, dict) and _ERROR in message:
        errors = {error.__name__: error for error in SpecchatError.__subclasses__()}
        raise errors.get(message[_ERROR], SpecchatError)(message["message"])
    return message


def _claim_output() -> None:
    """Reserve standard output for messages; what libraries print is discarded."""
    global _output
    _output = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _lower_priority(niceness: int) -> None:
    if niceness and sys.platform != "win32":
        os.nice(niceness)
    if niceness == LOWEST_PRIORITY:
        with suppress(OSError, psutil.Error):  # some sandboxes forbid it
            _leave_machine_to_others()


def _leave_machine_to_others() -> None:
    """The lowest priority of processor and disk that the system has."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    elif sys.platform == "darwin":
        os.setpriority(_DARWIN_PROCESS, 0, _DARWIN_BACKGROUND)
    elif sys.platform == "win32":
        psutil.Process().nice(psutil.IDLE_PRIORITY_CLASS)
        psutil.Process().ionice(psutil.IOPRIO_VERYLOW)


def limit_memory(size: int) -> None:
    """In a child: make allocations beyond `size` bytes of address space fail; 0 changes nothing.

    A lower existing limit, such as that of `ulimit -v`, is kept, since no process may raise its
    own. No effect on Windows.
    """
    if size and sys.platform != "win32":
        import resource

        known = (one for one in resource.getrlimit(resource.RLIMIT_AS) if one >= 0)
        lowest = min([size, *known])
        resource.setrlimit(resource.RLIMIT_AS, (lowest, lowest))
