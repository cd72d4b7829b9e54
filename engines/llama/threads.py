"""How many threads llama.cpp should use: a default for this machine, adjusted by measured passes.

Knows core counts and seconds; sets nothing.
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
    """Physical cores within our affinity mask and the container's quota; at least 1.

    A second thread on one core, or more threads than the quota, makes every barrier wait.
    """
    cores = _linux_cores() or _macos_cores() or max(1, (os.cpu_count() or 2) // 2)
    return max(1, min(cores, _quota()))


def _linux_cores() -> int:
    """Distinct (package, core) pairs among the CPUs we may run on; 0 where unknown."""
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
    """Performance cores (efficiency cores would delay every barrier); 0 on other systems."""
    if sys.platform != "darwin":
        return 0
    for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
        answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
        if answer.stdout.strip().isdigit():
            return int(answer.stdout)
    return 0


def _quota() -> int:
    """Whole CPUs that the control group (v2) grants; very many where it sets no limit."""
    if not CPU_QUOTA.exists():
        return sys.maxsize
    quota, _, period = CPU_QUOTA.read_text().partition(" ")
    return sys.maxsize if quota == "max" else math.ceil(int(quota) / int(period))


MAX_TIMED_ROWS = 16
"""Wider passes (chunks of a prompt) are not learned from: their time depends on other things."""
WINDOW = 64
"""Passes over which a count's mean is taken: one slow pass must not decide."""
TRIAL_INTERVAL, MAX_TRIAL_INTERVAL = 64, 1024
"""Passes until a count is tried: the first, doubled after each failed trial, and the last."""
RETURN_INTERVAL = 4
"""Passes until the count that was given up is tried again: one fast pass may have been chance."""
DENIED_PASSES = 16
"""Passes for which one counts that was denied its cores: fewer threads are then tried soon."""
MIN_CPU_SHARE = 0.65
"""Share of its threads' time below which a pass was denied its cores. On two quiet cores passes use
.93 to .98 of it, waiting at barriers included, and .73 where they take 6 ms; beside one busy
program .5 (Qwen2.5 1.5B and SmolLM2)."""
TRIAL_SHARE = 0.05
"""Share of the time that trials of more threads may cost beyond the current count."""
TAKEOVER_RATIO = 0.93
"""A count takes over if its pass takes less than this share of the current one's mean."""


@dataclass(slots=True)
class RunningMean:
    """Mean time of passes of one width, in seconds, over about the last `WINDOW` of them.

    Attributes:
        passes: in the mean. 0 after the first of a width, which also lays out memory and takes up
            to twice as long: it is replaced by the second.
    """

    seconds: float
    passes: int = 1

    def add(self, seconds: float) -> None:
        """Take a pass into the mean."""
        self.passes = min(self.passes + 1, WINDOW)
        self.seconds += (seconds - self.seconds) / self.passes


@dataclass(slots=True)
class ThreadCount:
    """A number of threads, and when it is tried next.

    Attributes:
        means: by width, while this is the current count.
        interval: passes to wait between trials.
        waited: passes since the last one; one that was denied its cores counts for more.
    """

    threads: int
    means: dict[int, RunningMean] = field(default_factory=dict)
    interval: int = TRIAL_INTERVAL
    waited: int = 0

    def record(self, rows: int, seconds: float) -> None:
        """Record a pass of `rows` rows that took `seconds`."""
        if rows in self.means:
            self.means[rows].add(seconds)
        else:
            self.means[rows] = RunningMean(seconds, passes=0)

    @property
    def is_due(self) -> bool:
        """Whether it has waited long enough for a trial."""
        return self.waited >= self.interval

    def mean(self, rows: int) -> float:
        """Mean seconds of a pass of `rows` rows; 0 while there is none to compare with."""
        known = self.means.get(rows)
        return known.seconds if known is not None and known.passes else 0.0


class ThreadTuner:
    """Learns the number of threads that gives the shortest passes while other programs run too.

    llama.cpp's threads meet at a barrier after every operation, so a single thread that has lost
    its core to another program delays all: with four threads on a busy four-core machine a pass of
    0.3 ms took 600 ms in the mean, and 0.6 ms with one thread. The best count is therefore learned.
    The candidates are the powers of two; the current one's mean time is kept for every width, since
    a drafted pass costs one to five plain ones, and its neighbours are tried on widths that have
    one. Fewer threads are tried soon after passes that did not get the cores they asked for, and
    seldom after others: on a quiet machine a trial takes twice as long.

    Args:
        max_threads: largest count, and the first one.
        learning: false to stay at `max_threads`.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        powers = (2**power for power in range(max_threads.bit_length()))
        counts = sorted({max_threads, *powers}) if learning else [max_threads]
        self._counts = [ThreadCount(threads) for threads in counts]
        self._current = self._used = len(counts) - 1
        self._trial_budget_s = 0.0

    def choose(self, rows: int) -> int:
        """Threads for the next pass, of `rows` rows: the current count, or a neighbour that is due
        for a trial."""
        self._used = self._current
        if rows <= MAX_TIMED_ROWS and self._counts[self._current].mean(rows):
            below, above = self._current - 1, self._current + 1
            if below >= 0 and self._counts[below].is_due:
                self._used = below
            elif (
                above < len(self._counts)
                and self._trial_budget_s >= 0.0
                and self._counts[above].is_due
            ):
                self._used = above
        return self._counts[self._used].threads

    def observe(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Learn from the pass chosen for, which took `seconds`, and `cpu_seconds` of the cores."""
        if rows > MAX_TIMED_ROWS or len(self._counts) == 1:
            return
        current = self._counts[self._current]
        if self._used != self._current:
            self._judge_trial(seconds / current.mean(rows))
            self._trial_budget_s -= max(0.0, seconds - current.mean(rows))
            return
        current.record(rows, seconds)
        max_budget_s = TRIAL_SHARE * MAX_TRIAL_INTERVAL * current.means[rows].seconds
        self._trial_budget_s = min(self._trial_budget_s + TRIAL_SHARE * seconds, max_budget_s)
        denied = cpu_seconds < MIN_CPU_SHARE * current.threads * seconds
        for index, count in enumerate(self._counts):
            count.waited += DENIED_PASSES if denied and index < self._current else 1

    def _judge_trial(self, ratio: float) -> None:
        """A trial took `ratio` of the current count's mean: switch to it and try the other again
        soon, or wait longer before the next trial."""
        current, tried = self._counts[self._current], self._counts[self._used]
        tried.waited = current.waited = 0
        if ratio < TAKEOVER_RATIO:
            tried.means = {
                rows: RunningMean(ratio * mean.seconds) for rows, mean in current.means.items()
            }
            tried.interval, current.interval = TRIAL_INTERVAL, RETURN_INTERVAL
            self._current = self._used
        else:
            tried.interval = min(2 * tried.interval, MAX_TRIAL_INTERVAL)


class ThreadTuners:
    """A tuner for passes of a single row and one for all others.

    The first are bound by reading the weights, for which few threads may do, the others by
    arithmetic: on two threads, passes of 1 and 8 rows (100 M weights, f16) took .81 and .53 of
    their time on one.

    Args:
        max_threads, learning: see `ThreadTuner`.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        self._single = ThreadTuner(max_threads, learning=learning)
        self._several = ThreadTuner(max_threads, learning=learning)

    def choose(self, rows: int) -> int:
        """Threads for the next pass, of `rows` rows."""
        return (self._single if rows == 1 else self._several).choose(rows)

    def observe(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Learn from the pass chosen for, which took `seconds`, and `cpu_seconds` of the cores."""
        (self._single if rows == 1 else self._several).observe(rows, seconds, cpu_seconds)
