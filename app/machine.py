"""What this machine is, as benchmarks report it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from engines.llama.devices import find_gpus


def machine() -> dict[str, object]:
    """{"cpu", "cores", "gpu"}; gpu is empty where there is none."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "gpu": ", ".join(find_gpus())}


def cpu_name() -> str:
    """The processor's name, or its architecture where the system does not tell."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def on_battery() -> bool:
    """Whether this machine runs on a battery now; false where it has none or does not tell."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False
