"""Child processes of this program that report their work as lines of JSON.

Owns how one is started, read and ended: by a thread (`ChildProcess`), by an event loop
(`AsyncChildProcess`), or by nobody (`start_detached`); and how it reports (`emit`). Refuses to know
what the children do: each is a module of its own, whose docstring says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from asyncio.subprocess import Process

MAX_LINE_BYTES = 2**28
"""The longest line an event loop takes: the last one of an import names all that was skipped."""


class ChildProcess:
    """A process at work, for one thread to hear. It is gone where `with` ends."""

    def __init__(self, module: str, *arguments: object) -> None:
        """Start `python -m module arguments…`."""
        self._process = _started(module, arguments, PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._process.communicate()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """The next it tells, until it ends."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not _is_whole(line):
            raise StopIteration
        return json.loads(line)

    def stop(self) -> None:
        """End it where it is, from any thread; who hears it comes to the end of what it told."""
        self._process.kill()

    def code(self) -> int:
        """Wait for its end; its exit code, negative where a signal ended it."""
        return self._process.wait()


class AsyncChildProcess:
    """A process at work, for an event loop to hear, for as long as `async with` lasts."""

    def __init__(self, module: str, *arguments: object) -> None:
        """It will be `python -m module arguments…`."""
        self._command = _command(module, arguments)
        self._process: Process

    async def __aenter__(self) -> Self:
        # Imported here, since commands come by this module that run no event loop.
        from asyncio import create_subprocess_exec

        self._process = await create_subprocess_exec(
            *self._command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
            env=_environment(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill it and wait for that, a moment, however often this is cancelled meanwhile.

        Raises:
            CancelledError: it was cancelled meanwhile; the process is gone all the same.
        """
        from asyncio import CancelledError, ensure_future, shield

        with suppress(ProcessLookupError):
            self._process.kill()
        # To the end of what it told: until then its pipe is open, and the loop may be closed next.
        ended = ensure_future(self._process.communicate())
        cancelled: CancelledError | None = None
        while not ended.done():
            try:
                await shield(ended)
            except CancelledError as heard:
                cancelled = heard
        if cancelled is not None:
            raise cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """The next it tells, until it ends."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not _is_whole(line):
            raise StopAsyncIteration
        return json.loads(line)

    async def code(self) -> int:
        """Wait for its end; its exit code, negative where a signal ended it."""
        return await self._process.wait()


def start_detached(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start one that nobody hears; it goes on when this process ends."""
    return _started(module, arguments, DEVNULL)


def emit(told: object) -> None:
    """In such a process: tell something that JSON can hold.

    Ends the process where nobody hears it any more: who asked for its work has ended. It may be
    killed at any moment anyway.
    """
    try:
        print(json.dumps(told), flush=True)
    except BrokenPipeError:
        os._exit(1)


def _started(module: str, arguments: tuple[object, ...], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(module, arguments),
        stdin=DEVNULL,
        stdout=output,
        stderr=DEVNULL,
        start_new_session=True,
        env=_environment(),
    )


def _command(module: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def _environment() -> dict[str, str]:
    """Ours, and our import path: the program need not be where Python looks for it by itself."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _is_whole(line: bytes) -> bool:
    """Whether it was told to its end: not where a process died over it, nor after the last one."""
    return line.endswith(b"\n")
