"""Child processes: every message is read, requests are answered, and none is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil
import pytest

from datastores.errors import InputError, ModelError
from engines.child_process import (
    TIMED_OUT,
    AsyncChildProcess,
    ChildProcess,
    child_environment,
    start_detached,
)
from tests.waiting import TIMEOUT_S, until

REPORTER = """
import os, sys, time
from engines.child_process import emit

action, *given = sys.argv[1:]
emit(os.getpid())
emit(given)
if action == "stays":
    for path in given:
        open(path, "w").close()
    time.sleep(600)
while action == "goes on":
    emit("more")
if action == "dies":
    print('{"half": ', end="", flush=True)
    os._exit(3)
sys.exit(0)
"""


@pytest.fixture(autouse=True)
def reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `reporter`, which this process could import too, and so can one that it starts."""
    (tmp_path / "reporter.py").write_text(REPORTER)
    monkeypatch.syspath_prepend(tmp_path)


async def _messages(action: str, *given: object) -> tuple[list[object], int]:
    async with AsyncChildProcess("reporter", action, *given) as child:
        return [message async for message in child], await child.code()


async def test_thread_and_loop_read_the_same(tmp_path: Path) -> None:
    for action, code in (("ends", 0), ("dies", 3)):
        with ChildProcess("reporter", action, tmp_path, 7) as child:
            pid, *here = list(child)
            assert child.code() == code
        messages, ended = await _messages(action, tmp_path, 7)
        assert here == messages[1:] == [[str(tmp_path), "7"]]
        assert ended == code
        assert not psutil.pid_exists(int(pid))


def test_a_message_that_is_too_long_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.child_process.MAX_LINE_BYTES", 1000)
    with ChildProcess("reporter", "ends", "x" * 100_000) as child:
        assert len(list(child)) == 1
        until(lambda: not child.is_running())


def test_stopped_from_another_thread_it_is_read_to_its_end(tmp_path: Path) -> None:
    all_sent = tmp_path / "sent"
    with ChildProcess("reporter", "stays", all_sent) as child:
        pid = next(child)

        def stop() -> None:
            until(all_sent.exists)
            child.stop()

        Thread(target=stop).start()
        assert list(child) == [[str(all_sent)]]
        assert child.code() < 0
        child.stop()  # ended long ago: that is fine
    assert not psutil.pid_exists(pid)


def test_it_is_gone_after_with() -> None:
    with ChildProcess("reporter", "stays") as child:
        pid = next(child)
    assert not psutil.pid_exists(pid)


async def test_it_is_gone_after_async_with() -> None:
    async with AsyncChildProcess("reporter", "stays") as child:
        pid = await anext(child)
    assert not psutil.pid_exists(pid)


async def test_cancelled_again_and_again_the_loop_still_waits_for_its_end() -> None:
    pids: list[int] = []

    async def read() -> None:
        async with AsyncChildProcess("reporter", "stays") as child:
            async for message in child:
                pids.append(message)

    task = asyncio.create_task(read())
    while len(pids) < 2:
        await asyncio.sleep(0.01)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert not psutil.pid_exists(pids[0])


async def test_cancelled_where_it_ended_by_itself_the_cancellation_is_raised() -> None:
    pids: list[int] = []

    async def read() -> None:
        async with AsyncChildProcess("reporter", "ends") as child:
            pids.append(await anext(child))
            await child.code()
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)  # not before `async with` waits

    task = asyncio.create_task(read())
    await asyncio.wait([task])
    assert task.cancelled()
    assert not psutil.pid_exists(pids[0])


def test_it_ends_when_nobody_reads_it() -> None:
    child = ChildProcess("reporter", "goes on")
    next(child)
    assert child._process.stdout is not None
    child._process.stdout.close()  # as where this process dies
    assert child.code() == 1


def test_it_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "psutil.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", ["", "relative", *sys.path])
    with ChildProcess("reporter", "ends") as child:
        next(child)
        list(child)
        assert child.code() == 0


def test_the_working_folder_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with ChildProcess("reporter", "ends", 7) as child:
        assert list(child)[1] == ["7"]


def test_a_detached_one_has_no_output() -> None:
    with start_detached("reporter", "ends") as child:
        assert child.stdout is None
        assert child.wait() == 0


SERVER = """
import sys
from engines.child_process import emit, emit_error, receive_requests, run_child
from datastores.errors import InputError, ModelError

def main(arguments):
    print("printed by a library")
    for message, content in receive_requests(float(arguments[0])):
        if message == "fail":
            emit_error(InputError("not this"))
        elif message == "die":
            raise ModelError("broken")
        elif message == "hang":
            while True:
                pass
        elif message == "allocate":
            try:
                emit(len(bytearray(2**30)))
            except MemoryError:
                emit("refused")
        else:
            emit([message, len(content)])

run_child(main, niceness=1, memory_bytes=2**29)
"""


@pytest.fixture
def server(tmp_path: Path) -> str:
    """A module that answers requests, each within half a second."""
    (tmp_path / "server.py").write_text(SERVER)
    return "server"


def test_requests_are_answered_and_an_error_costs_one(server: str) -> None:
    with ChildProcess(server, 60, requests=True) as child:
        assert child.request("a", b"\n" * 100_000) == ["a", 100_000]
        with pytest.raises(InputError, match="not this"):
            child.request("fail")
        assert child.request({"b": 1}) == [{"b": 1}, 0]
        with pytest.raises(ModelError, match="broken"):
            child.request("die")
        assert child.code() == 1
        with pytest.raises(EOFError):
            child.request("a")


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_memory_beyond_the_limit_is_refused(server: str) -> None:
    with ChildProcess(server, 60, requests=True) as child:
        assert child.request("allocate") == "refused"
        assert child.request("a") == ["a", 0]


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_a_lower_limit_of_memory_stays() -> None:
    """`ulimit -v` in the shell that started specchat: raising it would be an error."""
    script = "import sys; from engines.child_process import limit_memory; limit_memory(2**40);"
    script += "import resource; print(resource.getrlimit(resource.RLIMIT_AS))"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 4000000; {sys.executable} -c '{script}'"],
        env=child_environment(),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout.split() == [b"(4096000000,", b"4096000000)"]


def test_a_request_that_takes_too_long_ends_the_process(server: str) -> None:
    with ChildProcess(server, 0.5, requests=True) as child:
        with pytest.raises(TimeoutError):
            child.request("hang")
        assert child.code() == TIMED_OUT


def test_it_ends_with_its_requests(server: str) -> None:
    child = ChildProcess(server, 60, requests=True)
    assert child._process.stdin is not None
    child._process.stdin.close()  # as where this process dies
    child._process.stdin = None
    assert child.code() == 0
    child.close()
