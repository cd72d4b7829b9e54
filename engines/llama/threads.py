"""How many threads llama.cpp should use here: one for each physical core we may run on.

A second thread on one core, or more threads than a container's quota, makes every barrier wait.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """Physical cores within our affinity mask and the container's quota; at least 1."""
    cores = _linux_cores() or _macos_cores() or max(1, (os.cpu_count() or 2) // 2)
    return max(1, min(cores, _quota()))


def _linux_cores() -> int:
    """Distinct (package, core) pairs among the processors we may run on; 0 if not told."""
    if not CPU_INFO.exists() or not hasattr(os, "sched_getaffinity"):
        return 0
    allowed = os.sched_getaffinity(0)
    cores = set()
    for block in CPU_INFO.read_text(errors="replace").split("\n\n"):
        entry = dict(_pairs(block))
        if "processor" in entry and int(entry["processor"]) in allowed:
            core = entry.get("core id", entry["processor"])
            cores.add((entry.get("physical id", "0"), core))
    return len(cores)


def _pairs(block: str) -> list[tuple[str, str]]:
    halves = (line.partition(":") for line in block.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in halves if colon]


def _macos_cores() -> int:
    """Performance cores (efficiency cores would hold up every barrier); 0 elsewhere."""
    if sys.platform != "darwin":
        return 0
    for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
        answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
        if answer.stdout.strip().isdigit():
            return int(answer.stdout)
    return 0


def _quota() -> int:
    """Whole processors a cgroup (v2) grants; very many where it sets no limit."""
    if not CPU_QUOTA.exists():
        return sys.maxsize
    quota, _, period = CPU_QUOTA.read_text().partition(" ")
    return sys.maxsize if quota == "max" else math.ceil(int(quota) / int(period))
