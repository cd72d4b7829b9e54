"""What this machine is, as benchmarks report it, and whether it runs on a battery."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from engines.llama.devices import find_gpus


def machine() -> dict[str, object]:
    """{"cpu", "cores", "gpu"}; gpu is empty if there is none."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "gpu": ", ".join(find_gpus())}


def cpu_name() -> str:
    """The processor's name, or its architecture if the system does not name it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def on_battery() -> bool:
    """Whether this machine runs on its battery now; False if it has none or that is unknown."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False
