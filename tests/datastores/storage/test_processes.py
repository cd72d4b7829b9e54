"""One process at a time does the idle work."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from datastores.errors import StoreError
from datastores.storage.files import WorkLock

_HOLDER = """
import sys, time
from pathlib import Path
from datastores.storage.files import WorkLock
lock = WorkLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
time.sleep(60)
"""


def test_only_one_holds_it_until_it_lets_go(tmp_path: Path) -> None:
    first, second = WorkLock(tmp_path / "work.lock"), WorkLock(tmp_path / "work.lock")
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert (first.held, second.held) == (True, False)
    first.release()
    assert second.acquire()
    second.release()
    second.release()


def test_the_death_of_its_holder_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "work.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout as output:
        assert output.readline() == "True\n"
    lock = WorkLock(path)
    assert not lock.acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert lock.acquire()
    lock.release()


def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot lock .*work\.lock: .*; choose another place"):
        WorkLock(tmp_path / "file" / "work.lock").acquire()
