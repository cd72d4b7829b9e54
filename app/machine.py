"""Facts about this machine: its hardware, the load of other programs, battery power."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from engines.llama.devices import find_gpus


def machine() -> dict[str, object]:
    """Hardware as benchmarks report it: cpu, cores and gpu, which is empty if there is none."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "gpu": ", ".join(find_gpus())}


def cpu_name() -> str:
    """The processor's name, or its architecture if the system does not name it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


MAX_OTHER_LOAD = 0.25
"""Share of all cores above which other programs count as busy."""
LOAD_WINDOW_S = 3.0
"""Minimum seconds that the share is measured over."""


class OtherLoad:
    """Whether other programs keep the processor busy; poll it repeatedly.

    Low-priority processes, such as our own training, are not counted where the system reports them
    separately. Windows does not, so training there sometimes pauses because of its own load.
    """

    def __init__(self) -> None:
        self._busy, self._total = _processor_seconds()
        self._loaded = False

    def __call__(self) -> bool:
        busy, total = _processor_seconds()
        if total - self._total >= LOAD_WINDOW_S * (os.cpu_count() or 1):
            self._loaded = busy - self._busy > MAX_OTHER_LOAD * (total - self._total)
            self._busy, self._total = busy, total
        return self._loaded


def _processor_seconds() -> tuple[float, float]:
    """Seconds since boot summed over cores: busy at normal priority, and in total."""
    times = psutil.cpu_times()
    busy = times.user + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    total = busy + times.idle + getattr(times, "nice", 0.0) + getattr(times, "iowait", 0.0)
    return busy, total


def on_battery() -> bool:
    """Whether this machine runs on battery; False if it has none or its state is unknown."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False
