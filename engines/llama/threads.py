"""How many threads the next forward pass should use, while other programs use the machine too.

llama.cpp's threads meet at a barrier after every operation, so one thread that has lost its core to
another program holds up all: with four threads on a busy four-core machine a pass of 0.3 ms was
measured at 600 ms in the mean, and one thread at 0.6 ms. The best count is therefore learned: each
power of two is an arm, the present one's mean time is followed for every width, since a drafted
pass costs one to five plain ones, and neighbours are tried now and then, within a share of the time
that bounds what a bad try may cost.

Knows counts and seconds; sets nothing.

How many threads llama.cpp should use here: one for each physical core we may run on.

A second thread on one core, or more threads than a container's quota, makes every barrier wait.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
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


WIDEST = 16
"""Passes of more rows (a prompt's chunks) teach nothing: their time depends on other things."""
WINDOW = 64
"""Passes over which a count's mean is followed: one slow pass must not decide."""
PATIENCE = 4
"""Passes until a count is tried again; doubled each time it comes out worse, up to `LONGEST`."""
LONGEST = 1024
SHARE = 0.05
"""Share of the time that tries may cost beyond the present count."""
BETTER = 0.93
"""A count takes over if its pass takes less than this share of the present one's mean."""
HELD_UP = 4.0
"""A pass that takes this many means was held up: a smaller count is tried at once."""


@dataclass(slots=True)
class RunningMean:
    """The mean time of passes of one width, in seconds, over the last `WINDOW` of them."""

    seconds: float
    passes: int = 1

    def record(self, seconds: float) -> None:
        """Take a pass into the mean."""
        self.passes = min(self.passes + 1, WINDOW)
        self.seconds += (seconds - self.seconds) / self.passes


@dataclass(slots=True)
class ThreadCount:
    """One count of threads, and when it is to be tried again.

    Attributes:
        means: by width, while this is the present count.
    """

    threads: int
    means: dict[int, RunningMean] = field(default_factory=dict)
    patience: int = PATIENCE
    due: int = PATIENCE

    def record(self, rows: int, seconds: float) -> None:
        """A pass of `rows` rows took `seconds`."""
        if rows in self.means:
            self.means[rows].record(seconds)
        else:
            self.means[rows] = RunningMean(seconds)


class ThreadTuner:
    """Learns the number of threads that gives the shortest passes; at most `most`."""

    def __init__(self, most: int, *, learning: bool = True) -> None:
        """Begin with `most` threads; stay there unless `learning`."""
        powers = (2**power for power in range(most.bit_length()))
        counts = sorted({most, *powers}) if learning else [most]
        self._arms = [ThreadCount(threads) for threads in counts]
        self._present = self._next = len(counts) - 1
        self._passes = 0
        self._spare = 0.0

    @property
    def threads(self) -> int:
        """Threads for the next pass."""
        return self._arms[self._next].threads

    def observe(self, rows: int, seconds: float) -> int:
        """A pass of `rows` rows took `seconds` with `threads` threads; returns the next count."""
        if rows > WIDEST or len(self._arms) == 1:
            return self.threads
        self._passes += 1
        present = self._arms[self._present]
        usual = present.means.get(rows)
        if self._next == self._present:
            held_up = usual is not None and seconds > HELD_UP * usual.seconds
            present.record(rows, seconds)
            most = SHARE * LONGEST * present.means[rows].seconds
            self._spare = min(self._spare + SHARE * seconds, most)
            self._next = self._choose(held_up)
        elif usual is None:
            # Nothing to compare with: the present count first, then the try again.
            self._next = self._present
        else:
            self._judge(self._arms[self._next], seconds / usual.seconds, present)
            self._spare -= max(0.0, seconds - usual.seconds)
        return self.threads

    def _judge(self, tried: ThreadCount, ratio: float, present: ThreadCount) -> None:
        """A try took `ratio` of the usual time: take over and let the other prove itself soon, or
        wait longer."""
        if ratio < BETTER:
            tried.means = {
                rows: RunningMean(ratio * mean.seconds) for rows, mean in present.means.items()
            }
            present.patience = PATIENCE
            present.due = self._passes + PATIENCE
            self._present = self._next
        else:
            tried.patience = min(2 * tried.patience, LONGEST)
            tried.due = self._passes + tried.patience
            self._next = self._present

    def _choose(self, held_up: bool) -> int:
        """The arm for the next pass: the present one, or a neighbour whose try is due."""
        below, above = self._present - 1, self._present + 1
        if below >= 0 and (held_up or self._passes >= self._arms[below].due):
            return below
        if above < len(self._arms) and self._spare >= 0.0 and self._passes >= self._arms[above].due:
            return above
        return self._present
