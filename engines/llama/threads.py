"""How many threads llama.cpp should use: a default for this machine, tuned by measured passes."""

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
    """Physical cores within the affinity mask and the container's quota; at least 1.

    A second thread on one core, or more threads than the quota, delays every barrier.
    """
    cores = _linux_cores() or _macos_cores() or max(1, (os.cpu_count() or 2) // 2)
    return max(1, min(cores, _quota()))


def _linux_cores() -> int:
    """Distinct (package, core) pairs among the CPUs we may run on; 0 if unknown."""
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
    """Whole CPUs granted by the control group (v2); `sys.maxsize` if it sets no limit."""
    if not CPU_QUOTA.exists():
        return sys.maxsize
    quota, _, period = CPU_QUOTA.read_text().partition(" ")
    return sys.maxsize if quota == "max" else math.ceil(int(quota) / int(period))


MAX_TIMED_ROWS = 16
"""Wider passes, of prompts, are ignored: their time depends on more than the threads."""
WINDOW = 64
"""Number of passes that a mean is taken over, so that one slow pass does not decide."""
TRIAL_INTERVAL, MAX_TRIAL_INTERVAL = 64, 1024
"""Passes until a trial: at first, doubled after each failed one, and at most."""
RETURN_INTERVAL = 4
"""Passes until the previous count is tried again, as one fast trial may have been chance."""
DENIED_PASSES = 16
"""Weight of a pass that was denied its cores, so that fewer threads are soon tried."""
MIN_CPU_SHARE = 0.65
"""CPU time ÷ (wall time · threads) below which a pass was denied its cores. On two quiet cores this
is .93 to .98, waiting at barriers included, and .73 for passes of 6 ms; with another busy program
.5 (Qwen2.5 1.5B and SmolLM2)."""
TRIAL_SHARE = 0.05
"""Maximum share of the time that trials of more threads may lose."""
TAKEOVER_RATIO = 0.93
"""Trial time ÷ current mean below which a count replaces the current one."""


@dataclass(slots=True)
class RunningMean:
    """Mean wall time of the last passes of one width, about `WINDOW` of them.

    Attributes:
        passes: number of passes in the mean; 0 after the first of a width, which takes up to twice
            as long since it also allocates memory: the second replaces it.
    """

    seconds: float
    passes: int = 1

    def add(self, seconds: float) -> None:
        """Add a pass to the mean."""
        self.passes = min(self.passes + 1, WINDOW)
        self.seconds += (seconds - self.seconds) / self.passes


@dataclass(slots=True)
class ThreadCount:
    """A number of threads, and when it is tried next.

    Attributes:
        means: mean times by width, while this is the current count.
        interval: number of passes between trials.
        waited: passes since the last trial; see `DENIED_PASSES`.
    """

    threads: int
    means: dict[int, RunningMean] = field(default_factory=dict)
    interval: int = TRIAL_INTERVAL
    waited: int = 0

    def record(self, rows: int, seconds: float) -> None:
        """Record the wall time of a pass."""
        if rows in self.means:
            self.means[rows].add(seconds)
        else:
            self.means[rows] = RunningMean(seconds, passes=0)

    @property
    def is_due(self) -> bool:
        """Whether it has waited long enough for a trial."""
        return self.waited >= self.interval

    def mean(self, rows: int) -> float:
        """Mean seconds of a pass of `rows` rows; 0 if unknown."""
        known = self.means.get(rows)
        return known.seconds if known is not None and known.passes else 0.0


class ThreadTuner:
    """Learns the number of threads with the shortest passes while other programs run too.

    llama.cpp's threads meet at a barrier after every operation, so one thread that lost its core to
    another program delays all: on a busy four-core machine a pass of 0.3 ms took 600 ms on average
    with four threads, and 0.6 ms with one. Candidates are the powers of two. The current count's
    mean time is kept for each width, and its neighbours are tried on widths with a mean. Fewer
    threads are tried soon after passes that were denied their cores, and seldom otherwise, since on
    a quiet machine such a trial takes twice as long.

    Args:
        max_threads: the largest count, used at first.
        learning: false to keep `max_threads`.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        powers = (2**power for power in range(max_threads.bit_length()))
        counts = sorted({max_threads, *powers}) if learning else [max_threads]
        self._counts = [ThreadCount(threads) for threads in counts]
        self._current = self._used = len(counts) - 1
        self._trial_budget_s = 0.0

    def choose(self, rows: int) -> int:
        """The number of threads for the next pass: the current count, or a neighbour's trial."""
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
        """Learn from that pass's wall and CPU time."""
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
        """Switch to the tried count if its time ÷ the current mean is low; else wait longer."""
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
    """One tuner for passes of a single row and one for all others; see `ThreadTuner`.

    Single rows are bound by reading the weights, for which few threads may suffice, others by
    arithmetic: on two threads, passes of 1 and 8 rows (100 M weights, f16) took .81 and .53 of
    their time on one.
    """

    def __init__(self, max_threads: int, *, learning: bool = True) -> None:
        self._single = ThreadTuner(max_threads, learning=learning)
        self._several = ThreadTuner(max_threads, learning=learning)

    def choose(self, rows: int) -> int:
        """The number of threads for the next pass."""
        return (self._single if rows == 1 else self._several).choose(rows)

    def observe(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Learn from that pass's wall and CPU time."""
        (self._single if rows == 1 else self._several).observe(rows, seconds, cpu_seconds)
