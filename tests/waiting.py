"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 300.0
"""Only a test that fails waits so long: beside other programs, seconds can become minutes."""


def until(condition: Callable[[], object], pause_s: float = 0.005) -> None:
    """Look again and again until `condition` holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(pause_s)
