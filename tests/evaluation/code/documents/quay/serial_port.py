"""Reads lines from the gauges' serial ports, and survives their habits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

BAUD = {"north": 9600, "south": 4800}
"""The south gauge is older."""

WAKE_UP = b"\r\rWAKE 81\r"
SILENCE_S = 14.0
"""A gauge that has said nothing for this long is woken."""


def read_lines(
    port: BinaryIO, clock: Callable[[], float] = time.monotonic, patience: int = 3
) -> Iterator[bytes]:
    """Lines without their ends; sends the wake-up code to a silent gauge.

    Raises:
        TimeoutError: it was woken `patience` times and stayed silent.
    """
    heard, woken = clock(), 0
    while True:
        line = port.readline()
        if line.strip():
            heard, woken = clock(), 0
            yield drop_echo(line.strip())
        elif clock() - heard > SILENCE_S:
            if woken == patience:
                raise TimeoutError(f"gauge silent after {patience} wake-up calls")
            port.write(WAKE_UP)
            heard, woken = clock(), woken + 1


def drop_echo(line: bytes) -> bytes:
    """Remove our own command, which the south gauge repeats before its reply."""
    _, mark, rest = line.rpartition(b"WAKE 81")
    return rest.lstrip() if mark else line


def guess_baud(sample: bytes) -> int:
    """The speed at which a sample looks like text: at the wrong one most bytes have bit 7 set."""
    garbled = sum(byte > 127 for byte in sample)
    return BAUD["south"] if garbled * 2 > len(sample) else BAUD["north"]
