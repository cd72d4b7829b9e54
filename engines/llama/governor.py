"""How many threads the next forward pass should use, while other programs use the machine too.

llama.cpp's threads meet at a barrier after every operation, so one thread that has lost its core to
another program holds up all: with four threads on a busy four-core machine a pass of 0.3 ms was
measured at 600 ms in the mean, and one thread at 0.6 ms. The best count is therefore learned: each
power of two is an arm, its mean time is followed, and neighbours are tried now and then, within a
share of the time that bounds what a bad try may cost.

Knows counts and seconds; sets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Arm:
    """One count of threads: its mean time, and when it is to be tried again."""

    threads: int
    mean: float = 0.0
    passes: int = 0
    patience: int = PATIENCE
    due: int = PATIENCE

    def record(self, cost: float) -> None:
        """Take a pass into the mean."""
        self.passes += 1
        self.mean += (cost - self.mean) / min(self.passes, WINDOW)


class Governor:
    """Learns the number of threads that gives the shortest passes; at most `most`."""

    def __init__(self, most: int, *, learning: bool = True) -> None:
        """Begin with `most` threads; stay there unless `learning`."""
        powers = (2**power for power in range(most.bit_length()))
        counts = sorted({most, *powers}) if learning else [most]
        self._arms = [Arm(threads) for threads in counts]
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
        cost = seconds / (1.0 + 0.65 * (rows - 1) ** 0.7)
        present = self._arms[self._present]
        if self._next != self._present:
            self._judge(self._arms[self._next], cost, present)
        else:
            held_up = present.passes > 0 and cost > HELD_UP * present.mean
            present.record(cost)
            self._spare = min(self._spare + SHARE * cost, SHARE * LONGEST * present.mean)
            self._next = self._choose(held_up)
        return self.threads

    def _judge(self, tried: Arm, cost: float, present: Arm) -> None:
        """A try came out: take over and let the other prove itself soon, or wait longer."""
        self._spare -= max(0.0, cost - present.mean)
        if cost < BETTER * present.mean:
            tried.mean, tried.passes = cost, 1
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
