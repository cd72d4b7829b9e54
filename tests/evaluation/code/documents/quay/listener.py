"""The service on the harbour computer: reads both gauges for ever."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType

from .calibration import to_chart_datum
from .parsing import BadLineError, TideReading, parse_line

LOG = logging.getLogger("quay.listener")
BAD_LINES_BEFORE_ALARM = 25


def pump(lines: Iterable[bytes], keep: Callable[[TideReading], None], stop: threading.Event) -> int:
    """Parse, correct and keep lines until `stop` is set; returns the number of bad ones.

    Twenty-five bad lines in a row are logged as an error, which pages the technician: usually water
    in the junction box under the north stairs.
    """
    bad = in_a_row = 0
    for line in lines:
        if stop.is_set():
            break
        try:
            keep(to_chart_datum(parse_line(line)))
        except BadLineError as error:
            bad, in_a_row = bad + 1, in_a_row + 1
            LOG.info("%s", error)
            if in_a_row == BAD_LINES_BEFORE_ALARM:
                LOG.error("gauge garbled, check the junction box")
            continue
        in_a_row = 0
    return bad


def stop_on_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, so that the last transaction is finished."""
    stop = threading.Event()

    def set_it(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, set_it)
    return stop


def beat(path: str, now: float) -> None:
    """Write the heartbeat that the watchdog script reads; it restarts us after 15 minutes."""
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{now:.0f}\n")
