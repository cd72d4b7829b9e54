"""The lock that says which process does the idle and index work; the others work beside it.

Taken without waiting, and released by the operating system when its holder dies, however it dies.

Which process wrote a row, and whether it still lives.

A process id alone is used again after its owner's death; with the start time it is unique.
"""

from __future__ import annotations

from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from datastores.errors import StoreError


def process_id() -> str:
    """A mark of the running process, to be stored beside what it has not finished."""
    process = psutil.Process()
    return _mark(process)


def is_running(mark: str) -> bool:
    """Whether the process that left `mark` is still running on this machine."""
    number = mark.partition(":")[0]
    if not number.isdecimal():
        return False
    try:
        process = psutil.Process(int(number))
        return process.status() != psutil.STATUS_ZOMBIE and _mark(process) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _mark(process: psutil.Process) -> str:
    return f"{process.pid}:{process.create_time():.2f}"


class WorkLock:
    """One file, held by at most one process. Its threads share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path, blocking=False, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this process is the one that works."""
        return self._lock.is_locked

    def acquire(self) -> bool:
        """Try to become the one that works, and tell whether this process now is.

        Takes microseconds. Whoever does not get it asks again now and then: the holder may have
        ended.

        Raises:
            StoreError: the file cannot be made.
        """
        if self.held:
            return True
        try:
            self._lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise StoreError(
                f"cannot lock {self.path}: {error.strerror}; choose another place with --data-dir"
            ) from error
        return True

    def release(self) -> None:
        """Leave the work to another process. Harmless where it is not held."""
        self._lock.release()
