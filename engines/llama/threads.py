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
TRIAL_INTERVAL, MAX_TRIAL_INTERVAL = 4, 1024
"""Passes until a count is tried again: the first, doubled after each failed trial, and the last."""
TRIAL_SHARE = 0.05
"""Share of the time that trials may cost beyond the current count."""
TAKEOVER_RATIO = 0.93
"""A count takes over if its pass takes less than this share of the current one's mean."""
STALL_RATIO = 4.0
"""A pass that takes this many means was stalled: a smaller count is tried at once."""


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
        interval: passes from one trial to the next.
        next_trial: number of the pass from which on it may be tried.
    """

    threads: int
    means: dict[int, RunningMean] = field(default_factory=dict)
    interval: int = TRIAL_INTERVAL
    next_trial: int = TRIAL_INTERVAL

    def record(self, rows: int, seconds: float) -> None:
        """Record a pass of `rows` rows that took `seconds`."""
        if rows in self.means:
            self.means[rows].add(seconds)
        else:
            self.means[rows] = RunningMean(seconds, passes=0)


class ThreadTuner:
    """Learns the number of threads that gives the shortest passes while other programs run too.

    llama.cpp's threads meet at a barrier after every operation, so a single thread that has lost
    its core to another program delays all: with four threads on a busy four-core machine a pass of
    0.3 ms took 600 ms in the mean, and 0.6 ms with one thread. The best count is therefore learned.
    The candidates are the powers of two; the current one's mean time is kept for every width, since
    a drafted pass costs one to five plain ones; its neighbours are tried now and then, within a
    share of the time that bounds what bad trials cost.

    Args:
        max_threads: largest count, and the first one.
        learning: false to stay at `max_threads`.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        powers = (2**power for power in range(max_threads.bit_length()))
        counts = sorted({max_threads, *powers}) if learning else [max_threads]
        self._counts = [ThreadCount(threads) for threads in counts]
        self._current = self._next = len(counts) - 1
        self._passes = 0
        self._trial_budget_s = 0.0

    @property
    def threads(self) -> int:
        """Threads for the next pass."""
        return self._counts[self._next].threads

    def observe(self, rows: int, seconds: float) -> int:
        """Learn from a pass of `rows` rows that took `seconds` on `threads` threads.

        Returns:
            Threads for the next pass.
        """
        if rows > MAX_TIMED_ROWS or len(self._counts) == 1:
            return self.threads
        self._passes += 1
        current = self._counts[self._current]
        mean = current.means.get(rows)
        if self._next == self._current:
            stalled = mean is not None and seconds > STALL_RATIO * mean.seconds
            current.record(rows, seconds)
            max_budget_s = TRIAL_SHARE * MAX_TRIAL_INTERVAL * current.means[rows].seconds
            self._trial_budget_s = min(self._trial_budget_s + TRIAL_SHARE * seconds, max_budget_s)
            self._next = self._choose(stalled)
        elif mean is None or not mean.passes:
            # Nothing to compare the trial with: measure the current count first.
            self._next = self._current
        else:
            self._judge_trial(seconds / mean.seconds)
            self._trial_budget_s -= max(0.0, seconds - mean.seconds)
        return self.threads

    def _judge_trial(self, ratio: float) -> None:
        """A trial took `ratio` of the current count's mean: switch to it and try the other again
        soon, or wait longer before the next trial."""
        current, tried = self._counts[self._current], self._counts[self._next]
        if ratio < TAKEOVER_RATIO:
            tried.means = {
                rows: RunningMean(ratio * mean.seconds) for rows, mean in current.means.items()
            }
            current.interval = TRIAL_INTERVAL
            current.next_trial = self._passes + TRIAL_INTERVAL
            self._current = self._next
        else:
            tried.interval = min(2 * tried.interval, MAX_TRIAL_INTERVAL)
            tried.next_trial = self._passes + tried.interval
            self._next = self._current

    def _choose(self, stalled: bool) -> int:
        """Index of the next pass's count: the current one, or a neighbour that is due for trial."""
        below, above = self._current - 1, self._current + 1
        if below >= 0 and (stalled or self._passes >= self._counts[below].next_trial):
            return below
        affordable = self._trial_budget_s >= 0.0
        if (
            above < len(self._counts)
            and affordable
            and self._passes >= self._counts[above].next_trial
        ):
            return above
        return self._current


class ThreadTuners:
    """A tuner for passes of a single row and one for all others, as llama.cpp has two counts.

    The first are bound by reading the weights, for which few threads may do, the others by
    arithmetic: on two threads, passes of 1 and 8 rows (100 M weights, f16) took .81 and .53 of
    their time on one.

    Args:
        max_threads, learning: see `ThreadTuner`.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        self._single = ThreadTuner(max_threads, learning=learning)
        self._several = ThreadTuner(max_threads, learning=learning)

    @property
    def threads(self) -> tuple[int, int]:
        """Threads for the next pass of a single row, and of several."""
        return self._single.threads, self._several.threads

    def observe(self, rows: int, seconds: float) -> bool:
        """Learn from a pass of `rows` rows that took `seconds`.

        Returns:
            Whether `threads` has changed.
        """
        before = self.threads
        (self._single if rows == 1 else self._several).observe(rows, seconds)
        return self.threads != before
