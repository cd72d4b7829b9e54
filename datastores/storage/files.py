"""Files that several processes share: replaced atomically, locked, and marked with their writer.

Imports that take long are in the functions that need them: `app.locations` imports this module.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

from datastores.errors import StoreError

if TYPE_CHECKING:
    import psutil

ABANDONED_S = 86_400.0
"""Age in seconds from which an unfinished file counts as left by a killed writer."""


def write_atomic(
    path: Path, pieces: Iterable[str], *, newline: str | None = None, mode: int = 0o600
) -> None:
    """Replace `path` with a new file; at any moment, either the old or the new one is complete.

    Raises:
        OSError: the file cannot be written; nothing is left of the new one.
    """
    with _replacement(path, "w", encoding="utf-8", newline=newline) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
        os.chmod(file.name, mode)


def write_bytes_atomic(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """As `write_atomic`, for a cache: it does not wait for the disk, so a power failure may damage
    the file.

    Raises:
        OSError: the file cannot be written; nothing is left of the new one.
    """
    with _replacement(path, "wb") as file:
        file.writelines(pieces)


@contextmanager
def _replacement(path: Path, mode: str, **options: Any) -> Iterator[Any]:
    """A temporary file that replaces `path` at the end of `with`, or is deleted after an error."""
    from tempfile import NamedTemporaryFile

    _drop_abandoned(path)
    prefix = _unfinished(path)
    with NamedTemporaryFile(mode, dir=path.parent, prefix=prefix, delete=False, **options) as file:
        try:
            yield file
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _unfinished(path: Path) -> str:
    """Prefix of the names of files that are to replace `path`, and of no other program's."""
    return f".{path.name}.specchat-"


def _drop_abandoned(path: Path) -> None:
    """Delete files that killed writers of `path` left."""
    for left in path.parent.glob(f"{escape(_unfinished(path))}*"):
        with suppress(FileNotFoundError):  # another process was faster
            if left.stat().st_mtime < time() - ABANDONED_S:
                left.unlink()


PRIVATE_FILE, OTHERS = 0o600, 0o077
"""The mode of files created here, and the permission bits of other users."""


def make_private(path: Path) -> None:
    """Remove other users' permissions on `path`, if it exists and belongs to this user.

    A link is not followed: its target may be shared on purpose. The file is not opened, since that
    would drop this process's locks on it.

    Raises:
        OSError: it belongs to this user and cannot be changed.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if own and kind and status.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)


WANTED_SUFFIX = ".wanted"
"""Suffix of the file next to a lock that a process touches when it waits for the lock."""
RETRY_S = 0.05


class WorkLock:
    """Decides which process does the idle and index work: a file lock.

    The threads of its holder share it. The operating system releases it when the holder ends, even
    if it is killed. Idle work that holds it gives it up when another process claims it.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock

        self.path = path
        self._lock = FileLock(path, blocking=False, thread_local=False, mode=PRIVATE_FILE)

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._lock.is_locked

    def acquire(self) -> bool:
        """Try to take it without waiting; returns whether this process holds it.

        Takes microseconds. A process that does not get it should try again later, since the holder
        may have ended.

        Raises:
            StoreError: the file cannot be created.
        """
        from filelock import Timeout

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

    def claim(self, timeout_s: float) -> bool:
        """Take it within `timeout_s`, and tell a holder that does idle work to give it up.

        Raises:
            StoreError: as `acquire`.
        """
        started = monotonic()
        if not self.acquire():
            self.path.with_suffix(WANTED_SUFFIX).touch()
        while not self.acquire():
            if monotonic() - started > timeout_s:
                return False
            sleep(RETRY_S)
        return True

    def last_claimed(self) -> int:
        """A value that changes when another process claims it."""
        try:
            return self.path.with_suffix(WANTED_SUFFIX).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def release(self) -> None:
        """Leave the work to another process; no effect if it is not held."""
        self._lock.release()


def process_id() -> str:
    """Identifies this process in rows that it has not finished.

    Process numbers are reused; with the start time they are unique.
    """
    import psutil

    return _id_of(psutil.Process())


def process_id_of(pid: int) -> str:
    """As `process_id`, for another process.

    Raises:
        psutil.NoSuchProcess: there is none with that number.
    """
    import psutil

    return _id_of(psutil.Process(pid))


def is_running(process: str) -> bool:
    """Whether the process identified by `process` is still running on this machine."""
    import psutil

    number = process.partition(":")[0]
    if not number.isdecimal():
        return False
    try:
        found = psutil.Process(int(number))
        return found.status() != psutil.STATUS_ZOMBIE and _id_of(found) == process
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _id_of(process: psutil.Process) -> str:
    return f"{process.pid}:{process.create_time():.2f}"
