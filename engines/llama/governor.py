"""How many threads the next forward pass should use, while other programs use the machine too.

llama.cpp's threads meet at a barrier after every operation, so one thread that has lost its core to
another program holds up all: with four threads on a busy four-core machine a pass of 0.3 ms was
measured at 600 ms in the mean, and one thread at 0.6 ms. The best count is therefore learned: each
power of two is an arm, its mean time is followed, and neighbours are tried now and then, within a
share of the time that bounds what a bad try may cost.

Knows counts and seconds; sets nothing.
"""

from __future__ import annotations

WIDEST = 16
"""Passes of more rows (a prompt's chunks) teach nothing: their time depends on other things."""
BLEND = 0.15
"""Weight of the newest pass in an arm's mean."""
PATIENCE = 4
"""Passes between two tries at least; doubled up to `LONGEST` while nothing better is found."""
LONGEST = 2048
SHARE = 0.05
"""Share of the time that tries may cost beyond the present arm."""
BETTER = 0.93
"""An arm takes over if its mean is below this share of the present one's."""


class Governor:
    """Learns the number of threads that gives the shortest passes; at most `most`."""

    def __init__(self, most: int, *, learning: bool = True) -> None:
        """Begin with `most` threads; stay there unless `learning`."""
        powers = (2**power for power in range(most.bit_length()))
        self._arms = sorted({most, *powers}) if learning else [most]
        self._means: dict[int, float] = {}
        self._present = self._next = most
        self._patience = PATIENCE
        self._since = 0
        self._spare = 0.0

    @property
    def threads(self) -> int:
        """Threads for the next pass."""
        return self._next

    def observe(self, rows: int, seconds: float) -> int:
        """A pass of `rows` rows took `seconds` with `threads` threads; returns the next count."""
        if rows > WIDEST or len(self._arms) == 1:
            return self._next
        cost = seconds / (1.0 + 0.65 * (rows - 1) ** 0.7)
        tried, self._next = self._next, self._present
        known = self._means.get(tried)
        self._means[tried] = cost if known is None else known + BLEND * (cost - known)
        present = self._means.setdefault(self._present, cost)
        self._since += 1
        self._spare = min(self._spare + SHARE * cost, SHARE * LONGEST * present)
        if tried != self._present:
            self._judge(tried, cost, present)
        elif known is not None and cost > 4 * known:
            self._step_down()
        elif self._since >= self._patience and self._spare >= 0.0:
            self._next = self._neighbour()
        return self._next

    def _judge(self, tried: int, cost: float, present: float) -> None:
        """A try came out: take the arm over, or wait longer for the next."""
        self._since = 0
        self._spare -= max(0.0, cost - present)
        self._means[tried] = cost
        if cost < BETTER * present:
            self._present = self._next = tried
            self._patience = PATIENCE
        else:
            self._patience = min(2 * self._patience, LONGEST)

    def _step_down(self) -> None:
        """A pass was held up: try the next smaller count at once."""
        place = self._arms.index(self._present)
        if place:
            self._next = self._arms[place - 1]
            self._patience = PATIENCE

    def _neighbour(self) -> int:
        """The arm to try: an untried neighbour, else the larger and the smaller one in turn."""
        place = self._arms.index(self._present)
        around = [
            self._arms[near] for near in (place + 1, place - 1) if 0 <= near < len(self._arms)
        ]
        untried = [arm for arm in around if arm not in self._means]
        if untried:
            return untried[0]
        return around[self._patience.bit_length() % len(around)]
