"""Which process wrote a row, and whether it still lives.

A process id alone is used again after its owner's death; with the start time it is unique.
"""

from __future__ import annotations

import psutil


def this_process() -> str:
    """A mark of the running process, to be stored beside what it has not finished."""
    process = psutil.Process()
    return _mark(process)


def lives(mark: str) -> bool:
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
