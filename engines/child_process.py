"""Child processes of this program: modules that run in a process of their own and report to it.

Owns both ends. The parent starts a child and reads its messages: on a thread (`ChildProcess`), in
an event loop (`AsyncChildProcess`), or not at all (`start_detached`). The child runs under
`run_child`, which sets its limits, reports its errors by name, and keeps library output off its
standard output. Refuses to know what children do: each is a module whose docstring says so.

A message is one line of JSON on standard output. A request, to a child that takes them, is a line
`[message, length]` and that many bytes on standard input. A child may be killed at any time; it
ends by itself when its parent is gone: at its next message, or at the end of its requests.
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
"""The longest message that is read: the last one of an import names all that was skipped."""

LOWEST_PRIORITY = 19
"""The niceness at which a child runs only when the processor is idle."""

TIMED_OUT = 1 if sys.platform == "win32" else -signal.SIGPROF
"""The exit code at the limit of `limit_time`."""

_ERROR = "raised"
"""The key that marks a message as an error; the class's name is its value."""

_output: TextIO = sys.stdout
"""Where `emit` writes; `run_child` replaces it."""


class ChildProcess:
    """A running child, read by one thread. It is killed when `with` ends."""

    def __init__(self, module: str, *arguments: object, requests: bool = False) -> None:
        """Start `python -m module arguments…`; `requests`: whether it takes any."""
        self._process = _start(module, arguments, PIPE, stdin=PIPE if requests else DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """The next message, until the child ends; one that is too long ends it.

        Raises:
            SpecchatError: the child reported one; it has the same class.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline(MAX_LINE_BYTES)
        if not _is_complete(line):
            if len(line) == MAX_LINE_BYTES:
                self.stop()  # it would wait for ever for somebody to read the rest
            raise StopIteration
        return _decode(line)

    def send(self, message: object, content: bytes = b"") -> None:
        """Send a request; its answers are the next messages."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead: there is no answer to read either
            self._process.stdin.write(json.dumps([message, len(content)]).encode() + b"\n")
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def request(self, message: object, content: bytes = b"") -> Any:
        """Send a request and wait for the answer, the next message.

        Raises:
            TimeoutError: the child ended at the limit of `receive_requests`.
            EOFError: it ended otherwise.
            SpecchatError: it reported one; it goes on with the next request.
        """
        self.send(message, content)
        for answer in self:
            return answer
        raise TimeoutError if self.code() == TIMED_OUT else EOFError

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def pause(self) -> None:
        """Have the system stop it where it is, until `resume`; it keeps its memory and locks."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).suspend()

    def resume(self) -> None:
        """Let it go on after `pause`."""
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self.pid).resume()

    def stop(self) -> None:
        """Kill it, from any thread. Its reader still gets what was already written."""
        self._process.kill()

    def close(self) -> None:
        """Kill it, and wait until it is gone."""
        self.stop()
        self._process.communicate()

    def code(self) -> int:
        """Wait for its end; its exit code, negative if a signal ended it."""
        return self._process.wait()


class AsyncChildProcess:
    """A running child, read by an event loop. It is killed when `async with` ends."""

    def __init__(self, module: str, *arguments: object) -> None:
        """`async with` starts `python -m module arguments…`."""
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
        """Kill it and wait until it is gone, even if this is cancelled meanwhile.

        Raises:
            CancelledError: this was cancelled meanwhile; the process is gone all the same.
        """
        from asyncio import CancelledError, ensure_future, shield

        with suppress(ProcessLookupError):
            self._process.kill()
        # Drain its output too: until then the pipe is open, and the loop may be closed next.
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
        """The next message, until the child ends.

        Raises:
            SpecchatError: the child reported one; it has the same class.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not _is_complete(line):
            raise StopAsyncIteration
        return _decode(line)

    async def code(self) -> int:
        """Wait for its end; its exit code, negative if a signal ended it."""
        return await self._process.wait()


def start_detached(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a child whose messages are dropped; it continues when this process ends."""
    return _start(module, arguments, DEVNULL)


def run_child(
    main: Callable[[Sequence[str]], object], *, niceness: int = 0, memory_bytes: int = 0
) -> NoReturn:
    """In a child: run `main` with the process's arguments, and exit; 1 after an error.

    Args:
        niceness: lowers its priority, by 19 at the most.
        memory_bytes: limit of its address space; 0 for none.
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
    """In a child: send a message, which JSON can hold.

    Ends the process if nobody reads it: the parent is gone.
    """
    try:
        print(json.dumps(message), file=_output, flush=True)
    except BrokenPipeError:
        os._exit(1)


def emit_error(error: SpecchatError) -> None:
    """In a child: send an error, which is raised where the parent reads it."""
    emit({_ERROR: type(error).__name__, "message": str(error)})


def receive_requests(timeout_s: float = 0) -> Iterator[tuple[Any, bytes]]:
    """In a child: message and content of each request, until the parent ends.

    Ends the process if the caller spends more than `timeout_s` on one, as `limit_time` does; 0 for
    no limit.
    """
    requests = sys.stdin.buffer
    while _is_complete(line := requests.readline()):
        message, length = json.loads(line)
        content = requests.read(length)
        limit_time(timeout_s)
        yield message, content
        limit_time(0)


def limit_time(seconds: float) -> None:
    """In a child: have the system end it after so much processor time; 0: at no time.

    Each call replaces the limit before it. The time that other programs take does not count, where
    the system can tell (not Windows). The exit code is `TIMED_OUT`.
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
    # -P: the working folder may be anybody's, and hold a json.py.
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment() -> dict[str, str]:
    """This process's, with its import path: the program may not be on Python's default one.

    Without relative parts, such as the working folder: it may be anybody's, or deleted.
    """
    path = os.pathsep.join(filter(os.path.isabs, sys.path))
    return {**os.environ, "PYTHONPATH": path}


def _is_complete(line: bytes) -> bool:
    """False at the end of the output, and for a line that a process died over."""
    return line.endswith(b"\n")


def _decode(line: bytes) -> Any:
    message = json.loads(line)
    if isinstance(message, dict) and _ERROR in message:
        errors = {error.__name__: error for error in SpecchatError.__subclasses__()}
        raise errors.get(message[_ERROR], SpecchatError)(message["message"])
    return message


def _claim_output() -> None:
    """Keep standard output for messages; what libraries print is dropped."""
    global _output
    _output = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _lower_priority(niceness: int) -> None:
    if niceness and sys.platform != "win32":
        os.nice(niceness)
    if niceness == LOWEST_PRIORITY and sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with suppress(OSError, psutil.Error):  # some sandboxes forbid it; the rest is lowered
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    if niceness == LOWEST_PRIORITY and sys.platform == "win32":
        psutil.Process().nice(psutil.IDLE_PRIORITY_CLASS)


def limit_memory(size: int) -> None:
    """In a child: make allocations beyond `size` bytes of address space fail; 0: no more than now.

    A lower limit stays, such as that of a shell (`ulimit -v`): no process may raise its own. On
    systems that can (not Windows).
    """
    if size and sys.platform != "win32":
        import resource

        known = (one for one in resource.getrlimit(resource.RLIMIT_AS) if one >= 0)
        lowest = min([size, *known])
        resource.setrlimit(resource.RLIMIT_AS, (lowest, lowest))
